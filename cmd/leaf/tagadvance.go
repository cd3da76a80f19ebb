package main

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
)

// advanceAtOnce is how many tags are advanced at a time.
const advanceAtOnce = 8

// advanceFlags say which tags to advance.
type advanceFlags struct {
	clientFlags
	all bool
}

// advances is what leaf tag advance reports as JSON.
type advances struct {
	Tags []admin.TagAdvance `json:"tags"`
	// Missing are, with --all, the tags that generators or events know and that have no record.
	Missing []admin.MissingTag `json:"missing"`
	tagFailures
}

func newTagAdvanceCmd() *cobra.Command {
	var f advanceFlags
	cmd := &cobra.Command{
		Use:   "advance [TAG...]",
		Short: "Move tags above all IDs that are known to be in use",
		Long: `Move max_id of tags above all IDs that are known to be in use: by the database,
the ledger, every generator that runs, and the last refill event of the tag. It
prints where max_id was, by the database or the ledger if that is higher, and where
it is now. It never moves max_id down, and it is safe to repeat.

Another program may have reserved IDs in the database. The command claims these IDs in
the ledger, and prints their range, also if max_id stays where it was.

leaf restore does this for all tags that are behind. Run it with --all after any other
restore of JetStream, before callers come back. First start all generators with their
data folders, because each one knows the IDs that it reserved. With --all it also names
the tags that generators or events know and that have no record. A database that went
backwards needs no command: the generators move its max_id up.

Each tag continues above the IDs that generators have in memory. They drop those:
a gap. A warning names the generators that are not heard. If a tag fails, the
others go on. The failures come at the end, with exit status 1.

A strict tag has no refill events, and a generator that was started again does not know
what it handed out. So after a restore of JetStream, use leaf tag set --max-id for each
strict tag, with an ID above all that your services got. That holds with MySQL too: strict
tags are in JetStream.

With --shared-table it ends a refusal (store_regressed), but no generator knows the
IDs of the other programs. They may come twice. So find the highest ID of these
programs, and use leaf tag set --max-id instead.`,
		Example: `  leaf tag advance order
  leaf tag advance --all
  leaf tag advance --all --json > advanced.json`,
		Args: func(_ *cobra.Command, tags []string) error {
			if f.all == (len(tags) > 0) {
				return errors.New("name the tags, or give --all for all of them")
			}
			return nil
		},
		ValidArgsFunction: completeUpTo(math.MaxInt, &f.conn),
	}
	cmd.Flags().BoolVar(&f.all, "all", false, "all tags")
	return f.command(cmd, f.run)
}

func (f *advanceFlags) run(cmd *cobra.Command, c *admin.Client, tags []string) (err error) {
	missing := admin.MissingTags{Tags: []admin.MissingTag{}}
	if f.all {
		if tags, err = everyTag(cmd, c); err == nil {
			missing, err = missingTags(cmd.Context(), c)
		}
		if err != nil {
			return err
		}
	}
	done, err := f.advance(cmd, c, tags)
	done.Missing = missing.Tags
	warnMissing(cmd.ErrOrStderr(), missing)
	var unheard []string
	strict := 0
	for _, t := range done.Tags {
		unheard = append(unheard, t.Unheard...)
		if t.Order == bus.OrderStrict {
			strict++
		}
	}
	warnStrict(cmd.ErrOrStderr(), strict)
	slices.Sort(unheard)
	warnUnheard(cmd.ErrOrStderr(), slices.Compact(unheard))
	if err == nil && f.json {
		err = printJSON(cmd.OutOrStdout(), done)
	}
	switch {
	case err != nil:
		return err
	case cmd.Context().Err() != nil:
		return fmt.Errorf("interrupted: %d of %d tags were advanced", len(done.Tags), len(tags))
	}
	return done.error("advanced", len(tags))
}

// everyTag returns the names of all tags that can be served.
func everyTag(cmd *cobra.Command, c *admin.Client) (tags []string, err error) {
	unserved := 0
	err = eachPage(cmd.Context(), c, admin.PageRequest{}, func(page admin.TagsPage) {
		unserved += len(page.Unserved)
		for _, t := range page.Tags {
			tags = append(tags, t.Tag)
		}
	})
	if unserved > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "leaf: tags that are not served stay as they are: %d (`leaf tag list` shows why)\n", unserved)
	}
	return tags, err
}

// advance advances the tags, and prints the results in the order of the tags. The error is one of printing.
func (f *advanceFlags) advance(cmd *cobra.Command, c *admin.Client, tags []string) (done advances, err error) {
	done = advances{Tags: []admin.TagAdvance{}, tagFailures: tagFailures{Failed: []failedTag{}}}
	quiet := !f.json && isTerminal(cmd.OutOrStdout()) // the results themselves show the progress
	err = forMany(cmd, tags, advanceAtOnce, quiet, c.AdvanceTag, func(tag string, t admin.TagAdvance, err error) error {
		if err != nil {
			done.add(tag, err)
			return nil
		}
		done.Tags = append(done.Tags, t)
		if !f.json {
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", tag, advanced(t))
		}
		return err
	})
	return done, err
}

// advanced says what the command did to a tag.
func advanced(t admin.TagAdvance) string {
	text := fmt.Sprintf("%d → %d", t.Was, t.MaxID)
	if t.Was == t.MaxID {
		text = fmt.Sprintf("%d unchanged", t.MaxID)
	}
	if t.ClaimedFrom > 0 {
		claimed := bus.Range{First: int64(t.ClaimedFrom), Last: int64(t.MaxID) - 1}
		text += ", claimed " + claimed.String() + " in the ledger"
	}
	return text
}
