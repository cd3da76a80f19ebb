package wire

import (
	"runtime/debug"
	"strings"
	"sync"
)

// module is the module of this package.
const module = "github.com/leafbus/leafbus"

// devVersion is the version of a build that knows none: of a folder without git.
const devVersion = "0.0.0-dev"

// Version returns the version of Leafbus in this program (SemVer), as the build recorded it: `leaf
// --version`, the micro services, the states and the events of generators show it.
func Version() string { return builtVersion() }

var builtVersion = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return devVersion
	}
	return versionIn(info)
})

// versionIn finds the version: of the program leaf, or of what another program imports.
func versionIn(info *debug.BuildInfo) string {
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path != module {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		if v, ok := strings.CutPrefix(m.Version, "v"); ok {
			return v
		}
	}
	return devVersion
}
