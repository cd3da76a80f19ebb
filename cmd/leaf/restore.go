package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/kvstore"
)

// restoreFlags say how records are put back.
type restoreFlags struct {
	conn     connFlags
	json     bool
	replicas int
	wait     time.Duration
}

// restored is what leaf restore reports as JSON.
type restored struct {
	Installation string    `json:"installation"`
	BackedUp     time.Time `json:"backed_up"`
	Created      int       `json:"created"` // records
	Raised       int       `json:"raised"`
	Unchanged    int       `json:"unchanged"`
	Damaged      []string  `json:"damaged"` // records that JetStream has and that cannot be read: they stay as they are
	// Behind are tags that were raised above the backup, to where generators or events know them.
	Behind      []admin.KnownTag   `json:"behind"`
	Compared    bool               `json:"compared"` // a generator has said which tags there are
	Missing     []admin.MissingTag `json:"missing"`
	MoreMissing int                `json:"more_missing,omitempty"` // those that did not fit into an answer
	Strict      []string           `json:"strict"`                 // the strict tags
}

func newRestoreCmd() *cobra.Command {
	var f restoreFlags
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Put the records of a backup back",
		Long: `Put the records that leaf backup wrote into FILE back into JetStream. Missing buckets
are made as generators make them. A record that is there is raised, and nothing is
lowered: so it is safe to repeat, also while generators run. An account with another
installation, or with another key of an opaque tag, is refused.

First start all generators with their data folders. Those that find no installation wait
for the restore. Each one knows IDs that were reserved after the backup, and so do the
events. The restore raises the tags that are behind that. Then it waits until a generator
is ready, and names the tags that generators or events know and that have no record, each
with the command that says where it begins. The exit status is 1 if a tag is missing. If no
generator is heard, it warns. Then start them, and repeat it before callers ask.

Nobody knows how far a strict tag was: see the last step in docs/cluster.md.`,
		Example: `  leaf restore leaf-2026-11-26.backup
  leaf restore latest.backup --json > restored.json`,
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := within("replicas", f.replicas, 0, limitReplicas); err != nil {
				return err
			}
			data, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			b, err := kvstore.ParseBackup(data)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return f.conn.withJetStream(cmd, func(c *admin.Client, js jetstream.JetStream) error { return f.run(cmd, c, js, b) })
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&f.replicas, "replicas", 0, "copies of the buckets that it makes in a NATS cluster (default 3 where it has them, else 1)")
	fs.DurationVar(&f.wait, "wait", time.Minute, "longest wait until a generator is ready, and can say which tags there are")
	fs.BoolVar(&f.json, "json", false, "write JSON")
	group(fs, groupOutput, "json")
	f.conn.registerClient(fs)
	f.conn.ownInboxes(fs) // keys are in the answers
	return cmd
}

func (f *restoreFlags) run(cmd *cobra.Command, c *admin.Client, js jetstream.JetStream, b kvstore.Backup) error {
	ctx := cmd.Context()
	cfg := kvstore.Config{Conn: js.Conn(), JS: js, Replicas: f.replicas}
	err := kvstore.AwaitOldStore(ctx, cfg)
	var know generator.Knowledge // generators may start during that wait
	if err == nil {
		know, err = generator.Gather(ctx, c, js, b.Installation)
	}
	if err == nil { // the last one of a tag need not be the highest
		err = generator.Refills(ctx, js, "", func(r events.Refill) { know.Ends[r.Tag] = max(know.Ends[r.Tag], r.Last+1) })
	}
	if err != nil {
		return fmt.Errorf("nothing was restored: %w", ofJetStream(ctx, js, err))
	}
	progress, end := showRecords(cmd)
	done, err := kvstore.Restore(ctx, cfg, b, know.Ends, progress)
	end()
	if err != nil {
		return ofJetStream(ctx, js, err)
	}
	report := restored{
		Installation: b.Installation, BackedUp: b.Created, Created: done.Created, Raised: done.Raised, Unchanged: done.Unchanged,
		Damaged: append([]string{}, done.Damaged...), Behind: []admin.KnownTag{}, Missing: []admin.MissingTag{}, Strict: []string{},
	}
	for _, tag := range done.Behind {
		report.Behind = append(report.Behind, admin.KnownTag{Tag: tag, End: bus.ID(know.Ends[tag])})
	}
	var problem error
	if len(know.Nodes) > 0 {
		problem = f.compare(ctx, c, &report)
	} else {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning: no generator is heard, and each one knows IDs that were reserved after the backup. "+
			"Start all generators with their data folders, and repeat the restore before callers ask for IDs")
	}
	if f.json {
		err = printJSON(cmd.OutOrStdout(), report)
	} else {
		err = printRestored(cmd, report)
	}
	if problem == nil && len(report.Missing) > 0 {
		problem = fmt.Errorf("missing tags: %d. Their callers get no IDs until you add them", len(report.Missing)+report.MoreMissing)
	}
	return errors.Join(err, problem)
}

// compare waits until a generator can say which tags there are, and adds to the report what is missing.
func (f *restoreFlags) compare(ctx context.Context, c *admin.Client, report *restored) error {
	wait, cancel := context.WithTimeout(ctx, f.wait)
	defer cancel()
	for {
		strict := []string{}
		err := eachPage(wait, c, admin.PageRequest{}, func(page admin.TagsPage) {
			for _, t := range page.Tags {
				if t.Order == bus.OrderStrict {
					strict = append(strict, t.Tag)
				}
			}
		})
		var missing admin.MissingTags
		if err == nil {
			missing, err = missingTags(wait, c)
		}
		if err == nil {
			report.Missing, report.MoreMissing, report.Strict, report.Compared = missing.Tags, missing.More, strict, true
			return nil
		}
		select {
		case <-wait.Done():
			return fmt.Errorf("the records are restored, but no generator was ready to say which tags there are: look at `leaf nodes`, "+
				"and repeat the restore: %w", err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func printRestored(cmd *cobra.Command, r restored) error {
	w := cmd.OutOrStdout()
	_, err := fmt.Fprintf(w, "installation %s, as of %s: records created: %d, raised: %d, unchanged: %d\n",
		r.Installation, timeOf(r.BackedUp), r.Created, r.Raised, r.Unchanged)
	for _, t := range r.Behind {
		if err == nil {
			_, err = fmt.Fprintf(w, "%s was behind, and begins at %d\n", t.Tag, t.End)
		}
	}
	if len(r.Damaged) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: these records cannot be read, and stay as they are: %s\n", strings.Join(r.Damaged, ", "))
	}
	warnMissing(cmd.ErrOrStderr(), admin.MissingTags{Tags: r.Missing, More: r.MoreMissing})
	warnStrict(cmd.ErrOrStderr(), len(r.Strict))
	return err
}
