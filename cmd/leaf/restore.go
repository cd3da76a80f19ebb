package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/cli"
)

// restoreFlags say how records are put back.
type restoreFlags struct {
	cli.Client
	replicas int
	wait     time.Duration
}

// restored is what leaf restore reports as JSON.
type restored struct {
	Installation string    `json:"installation"`
	BackedUp     time.Time `json:"backed_up"`
	kvstore.Restored
	// Behind are tags that were raised above the backup, to where generators or events know them.
	Behind      []admin.KnownTag `json:"behind"`
	Compared    bool             `json:"compared"` // a generator has said which tags there are
	Missing     []admin.KnownTag `json:"missing"`
	MoreMissing int              `json:"more_missing,omitempty"` // those that did not fit into an answer
	Strict      []string         `json:"strict"`                 // the strict tags
}

func newRestoreCmd() *cobra.Command {
	var f restoreFlags
	var b kvstore.Backup
	cmd := f.Command(&cobra.Command{
		Use:   "restore FILE",
		Short: "Put the records of a backup back",
		Long: `Put the records that leaf backup wrote into FILE back into JetStream. First start all
generators with their data folders: docs/operate.md has all steps. Nothing is lowered,
so it is safe to repeat. The exit status is 1 if a tag is missing.`,
		Example: `  leaf restore leaf-2026-11-26.backup
  leaf restore latest.backup --json > restored.json`,
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		PreRunE: func(_ *cobra.Command, args []string) error {
			data, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			if b, err = kvstore.ParseBackup(data); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return nil
		},
	}, func(s *cli.Session, _ []string) error { return f.run(s, b) })
	replicasFlag(cmd.Flags(), &f.replicas)
	cli.Number(cmd.Flags(), &f.wait, "wait", time.Minute, 0, math.MaxInt64,
		"longest wait until a generator can say which tags there are")
	f.OwnInboxes(cmd.Flags())
	return cmd
}

func (f *restoreFlags) run(s *cli.Session, b kvstore.Backup) error {
	ctx := s.Context()
	cfg := kvstore.Config{JS: s.JS, Replicas: f.replicas}
	err := kvstore.AwaitOldStore(ctx, cfg)
	var know audit.Knowledge // generators may start during that wait
	if err == nil {
		know, err = audit.Gather(ctx, s.Admin, s.JS, b.Installation)
	}
	if err == nil { // the last one of a tag need not be the highest
		err = audit.Refills(ctx, s.JS, "", func(tag, _ string, r bus.Range) {
			know.Ends[tag] = max(know.Ends[tag], r.Last+1)
		})
	}
	if err != nil {
		return fmt.Errorf("nothing was restored: %w", err)
	}
	done, err := kvstore.Restore(ctx, cfg, b, know.Ends, showRecords(s))
	if err != nil {
		return err
	}
	report := restored{Installation: b.Installation, BackedUp: b.Created, Restored: done,
		Behind: []admin.KnownTag{}, Missing: []admin.KnownTag{}, Strict: []string{}}
	for _, tag := range done.Behind {
		report.Behind = append(report.Behind, admin.KnownTag{Tag: tag, End: bus.ID(know.Ends[tag])})
	}
	var problem error
	if len(know.Nodes) > 0 {
		problem = f.compare(s, &report)
	} else {
		s.Warnf("no generator is heard, and each one knows IDs that were reserved after the backup. " +
			"Start all generators with their data folders, and repeat the restore before callers ask for IDs")
	}
	err = s.Print(report, func(w io.Writer) { printRestored(s, w, report) })
	if problem == nil && len(report.Missing) > 0 {
		problem = fmt.Errorf("missing tags: %d. Their callers get no IDs until you add them",
			len(report.Missing)+report.MoreMissing)
	}
	return errors.Join(err, problem)
}

// compare waits until a generator can say which tags there are, and adds to the report what is
// missing.
func (f *restoreFlags) compare(s *cli.Session, report *restored) error {
	wait, cancel := context.WithTimeout(s.Context(), f.wait)
	defer cancel()
	for {
		strict := []string{}
		all, err := allTags(wait, s.Admin, admin.PageRequest{})
		for _, t := range all.Tags {
			if t.Order == idspace.OrderStrict {
				strict = append(strict, t.Tag)
			}
		}
		var missing admin.MissingTags
		if err == nil {
			missing, err = missingTags(wait, s.Admin)
		}
		if err == nil {
			report.Missing, report.MoreMissing, report.Strict = missing.Tags, missing.More, strict
			report.Compared = true
			return nil
		}
		select {
		case <-wait.Done():
			return fmt.Errorf("the records are restored, but no generator was ready to say which tags there are: "+
				"look at `leaf nodes`, "+
				"and repeat the restore: %w", err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func printRestored(s *cli.Session, w io.Writer, r restored) {
	fmt.Fprintf(w, "installation %s, as of %s: records created: %d, raised: %d, unchanged: %d\n",
		r.Installation, cli.Time(r.BackedUp), r.Created, r.Raised, r.Unchanged)
	for _, t := range r.Behind {
		fmt.Fprintf(w, "%s was behind, and begins at %d\n", t.Tag, t.End)
	}
	if len(r.Damaged) > 0 {
		s.Warnf("these records cannot be read, and stay as they are: %s", strings.Join(r.Damaged, ", "))
	}
	warnMissing(s, admin.MissingTags{Tags: r.Missing, More: r.MoreMissing})
	warnStrict(s, len(r.Strict))
}
