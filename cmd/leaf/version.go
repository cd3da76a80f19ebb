package main

import (
	"cmp"
	"fmt"
	"runtime/debug"

	"github.com/leafbus/leafbus/internal/wire"
)

// versionText is what leaf --version prints: the version, and the commit that the build recorded.
func versionText() string {
	set := make(map[string]string)
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, s := range info.Settings {
			set[s.Key] = s.Value
		}
	}
	commit := cmp.Or(set["vcs.revision"], "unknown: not built in a clone")
	if set["vcs.modified"] == "true" {
		commit += ", changed"
	}
	if at := set["vcs.time"]; at != "" {
		commit += " of " + at
	}
	return fmt.Sprintf("leaf version %s\ncommit %s\n", wire.Version(), commit)
}
