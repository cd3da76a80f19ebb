package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/allocator/disk"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/kvstore"
)

// backupFlags say where a backup goes.
type backupFlags struct {
	conn  connFlags
	json  bool
	force bool
}

// backedUp is what leaf backup reports as JSON.
type backedUp struct {
	File         string         `json:"file"`
	Installation string         `json:"installation"`
	Created      time.Time      `json:"created"`
	Records      map[string]int `json:"records"` // by bucket
}

func newBackupCmd() *cobra.Command {
	var f backupFlags
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Back up all records, complete",
		Long: `Write all records into FILE: the installation, the tags, the workers, and the keys
of opaque tags. It needs no generator, and generators may run meanwhile. leaf
restore FILE puts the records back.

FILE is readable by its owner only. It has the keys of opaque tags: keep it as secret as
they are. It is complete, or it is not written. The stream LEAF_EVENTS is not in it, and
neither are a MySQL database and ZooKeeper: back those up with their own programs.

Do not use "nats backup" while generators run: a snapshot of nats-server can lack records
that are rewritten meanwhile.`,
		Example: `  leaf backup "leaf-$(date +%F).backup"
  leaf backup --force latest.backup`,
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.conn.withJetStream(cmd, func(_ *admin.Client, js jetstream.JetStream) error { return f.run(cmd, js, args[0]) })
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&f.force, "force", false, "replace FILE if it exists")
	fs.BoolVar(&f.json, "json", false, "write JSON")
	group(fs, groupOutput, "json")
	f.conn.registerClient(fs)
	f.conn.ownInboxes(fs) // keys are in the answers
	return cmd
}

func (f *backupFlags) run(cmd *cobra.Command, js jetstream.JetStream, path string) error {
	if _, err := os.Lstat(path); err == nil && !f.force {
		return fmt.Errorf("%s exists: choose another name, or replace it with --force", path)
	}
	progress, end := showRecords(cmd)
	b, err := kvstore.TakeBackup(cmd.Context(), kvstore.Config{Conn: js.Conn(), JS: js}, progress)
	end()
	if err != nil {
		return ofJetStream(cmd.Context(), js, err)
	}
	if err := writePrivate(path, b); err != nil {
		return fmt.Errorf("the backup is not written: %w", err)
	}
	done := backedUp{path, b.Installation, b.Created, make(map[string]int)}
	for _, r := range b.Records {
		done.Records[r.Bucket]++
	}
	if done.Records[bus.BucketKeys] > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "leaf: %s has the keys of opaque tags: keep it as secret as they are\n", path)
	}
	if f.json {
		return printJSON(cmd.OutOrStdout(), done)
	}
	var counts []string
	for _, bucket := range b.Buckets {
		counts = append(counts, fmt.Sprintf("%s %d", bucket, done.Records[bucket]))
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s has installation %s: %d records (%s)\n",
		path, b.Installation, len(b.Records), strings.Join(counts, ", "))
	return err
}

// writePrivate writes a file that only its owner can read, as a whole or not at all.
func writePrivate(path string, b kvstore.Backup) error {
	temp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // its mode is 0600
	if err != nil {
		return err
	}
	err = errors.Join(b.Write(temp), temp.Sync(), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		os.Remove(temp.Name())
		return err
	}
	return disk.SyncFolder(filepath.Dir(path))
}

// showRecords shows on a terminal how far a backup or a restore is.
func showRecords(cmd *cobra.Command) (show kvstore.Progress, end func()) {
	type state struct {
		bucket      string
		done, total int
	}
	states, shown := make(chan state), make(chan struct{}) // one goroutine owns the line
	go func() {
		defer close(shown)
		p := newProgress(cmd.ErrOrStderr(), 1, "")
		defer p.end()
		for s := range states {
			p.at("records of "+s.bucket, int64(s.done), int64(s.total))
		}
	}()
	return func(bucket string, done, total int) { states <- state{bucket, done, total} }, func() { close(states); <-shown }
}

// ofJetStream is an error of reading or writing JetStream, as a person needs it.
func ofJetStream(ctx context.Context, js jetstream.JetStream, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return denied(js.Conn(), err)
}
