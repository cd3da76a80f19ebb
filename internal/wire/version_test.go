package wire

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	leafbus := func(version string) debug.Module { return debug.Module{Path: module, Version: version} }
	other := debug.Module{Path: "example.com/shop", Version: "v9.9.9"}
	replaced := leafbus("v1.2.3")
	replaced.Replace = &debug.Module{Path: "../leafbus"}
	fork := leafbus("v1.2.3")
	fork.Replace = &debug.Module{Path: "example.com/fork", Version: "v1.2.4"}
	dep := leafbus("v1.2.3-rc.1")
	for name, c := range map[string]struct {
		info debug.BuildInfo
		want string
	}{
		"go install":         {debug.BuildInfo{Main: leafbus("v0.1.0")}, "0.1.0"},
		"go build, with git": {debug.BuildInfo{Main: leafbus("v0.1.1-0.20261123131200-0a40163e9b1f+dirty")}, "0.1.1-0.20261123131200-0a40163e9b1f+dirty"},
		"go build":           {debug.BuildInfo{Main: leafbus("(devel)")}, "0.0.0-dev"},
		"a test":             {debug.BuildInfo{Main: leafbus("")}, "0.0.0-dev"},
		"another program":    {debug.BuildInfo{Main: other, Deps: []*debug.Module{&other, &dep}}, "1.2.3-rc.1"},
		"replaced":           {debug.BuildInfo{Main: other, Deps: []*debug.Module{&replaced}}, "0.0.0-dev"},
		"replaced by a fork": {debug.BuildInfo{Main: other, Deps: []*debug.Module{&fork}}, "1.2.4"},
		"none of it":         {debug.BuildInfo{Main: other}, "0.0.0-dev"},
	} {
		if got := versionIn(&c.info); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if Version() == "" {
		t.Error("this program has no version")
	}
}
