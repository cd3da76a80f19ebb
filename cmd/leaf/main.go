// Command leaf runs Leafbus generators and talks to them.
package main

import (
	"cmp"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/internal/wire"
)

func main() { cli.Main(newRoot()) }

// newRoot returns the program: the command leaf with everything below it.
func newRoot() *cobra.Command {
	root := cli.Program(&cobra.Command{
		Use:   "leaf",
		Short: "Distributed IDs over NATS",
		Long: `Leafbus issues unique 64-bit IDs over NATS, of two kinds. A tag is a sequence of IDs
with a name, for example order. A snowflake is an ID that contains the time when it
was made, and needs no tag.

--data-dir, the variable LEAF_DATA_DIR, and the key data-dir in the YAML file of
--config are one setting. A flag wins over both, and the environment over the file.
Exit status: 0, 1 failed or refused, 2 wrong usage, 3 no NATS server or no generator.`,
		Example: `  leaf serve --tag order                run a generator, with a NATS server inside
  leaf serve -s nats://10.0.0.5:4222    run one that joins the NATS you have
  leaf get order -n 10                  ten IDs, one a line
  leaf tag list                         the tags, and how far they are
  leaf doctor                           what is wrong, and what to do`,
		Version: wire.Version(),
	}, newServeCmd(), newGetCmd(), newSnowflakeCmd(), newDecodeCmd(), newTagCmd(), newWorkersCmd(), newNodesCmd(),
		newBackupCmd(), newRestoreCmd(), newBenchCmd(), newEventsCmd(), newAuditCmd(), newTraceCmd(), newLayoutCmd(),
		newHealthCmd(), newDoctorCmd(), newMigrateCmd(), cli.NewConnectionTopic())
	root.SetVersionTemplate(versionText())
	return root
}

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
