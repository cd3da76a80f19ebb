package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/allocator/disk"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/internal/wire"
)

// backedUp is what leaf backup reports as JSON.
type backedUp struct {
	File         string         `json:"file"`
	Installation string         `json:"installation"`
	Created      time.Time      `json:"created"`
	Records      map[string]int `json:"records"` // by bucket
}

func newBackupCmd() *cobra.Command {
	var f cli.Client
	var force bool
	cmd := f.Command(&cobra.Command{
		Use:   "backup FILE",
		Short: "Back up all records, complete",
		Long: `Write all records into FILE: the installation, tags, workers, and the keys of opaque
tags, so keep it secret. It is complete, or not written. Generators may run meanwhile.`,
		Example: `  leaf backup "leaf-$(date +%F).backup"
  leaf backup --force latest.backup`,
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	}, func(s *cli.Session, args []string) error { return backup(s, args[0], force) })
	cmd.Flags().BoolVar(&force, "force", false, "replace FILE if it exists")
	f.OwnInboxes(cmd.Flags())
	return cmd
}

func backup(s *cli.Session, path string, force bool) error {
	if path == "-" {
		return cli.Usagef("a backup goes into a file that only its owner can read, not to stdout: name one")
	}
	if _, err := os.Lstat(path); err == nil && !force {
		return fmt.Errorf("%s exists: choose another name, or replace it with --force", path)
	}
	b, err := kvstore.TakeBackup(s.Context(), kvstore.Config{JS: s.JS}, showRecords(s))
	if err != nil {
		return err
	}
	if err := disk.Replace(path, 0o600, b.Write); err != nil {
		return fmt.Errorf("the backup is not written: %w", err)
	}
	done := backedUp{path, b.Installation, b.Created, make(map[string]int)}
	for _, r := range b.Records {
		done.Records[r.Bucket]++
	}
	if done.Records[wire.BucketKeys] > 0 {
		s.Warnf("%s has the keys of opaque tags: keep it as secret as they are", path)
	}
	return s.Print(done, func(w io.Writer) {
		var counts []string
		for _, bucket := range b.Buckets {
			counts = append(counts, fmt.Sprintf("%s %d", bucket, done.Records[bucket]))
		}
		fmt.Fprintf(w, "%s has installation %s: %d records (%s)\n", path, b.Installation, len(b.Records),
			strings.Join(counts, ", "))
	})
}
