package main

import (
	"context"
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
	all     bool
	maxID   int64
	without []string
}

// advances is what leaf tag advance reports as JSON.
type advances struct {
	Tags []admin.TagAdvance `json:"tags"`
	// Missing are, with --all, the tags that generators or events know and that have no record.
	Missing []admin.MissingTag `json:"missing"`
	// LossEnded: the tags were lost, and that has ended.
	LossEnded bool `json:"loss_ended"`
	tagFailures
}

func newTagAdvanceCmd() *cobra.Command {
	var f advanceFlags
	cmd := &cobra.Command{
		Use:   "advance [TAG...]",
		Short: "Move tags above all IDs that are known to be in use",
		Long: `Move max_id of tags above all IDs that are known to be in use: by the tag's record, by
every generator that runs, and by the last refill event of the tag. It prints where max_id
was, and where it is now. It never moves max_id down, and it is safe to repeat.

Generators that run do this by themselves when they see that JetStream or the database
was set back. The command is for what no running generator knows. If the generator that
claimed last is not heard, it refuses the tag and says what to do: start that generator
with its data folder; or give --max-id, above all IDs that your services got; or, if its
folder is lost, --without with its name.

With --all it takes all tags, and names those that generators or events know and that
have no record, each with the command that adds it. If JetStream lost all tags, requests
for names without a record are refused until that loss ends. --all ends it, when no tag
is missing and every generator that may know others is heard or named by --without.

Each tag continues above the IDs that generators have in memory. They drop those:
a gap. A warning names the generators that are not heard. If a tag fails, the
others go on. The failures come at the end, with exit status 1.

A strict tag has no refill events, and a generator that was started again does not know
all that it handed out. So after a restore of JetStream, use leaf tag set --max-id for
each strict tag, with an ID above all that your services got. That holds with MySQL too:
strict tags are in JetStream.`,
		Example: `  leaf tag advance order
  leaf tag advance order --max-id 5000000
  leaf tag advance --all
  leaf tag advance --all --without leaf-2
  leaf tag advance --all --json > advanced.json`,
		Args: func(_ *cobra.Command, tags []string) error {
			if f.all == (len(tags) > 0) {
				return errors.New("name the tags, or give --all for all of them")
			}
			return nil
		},
		ValidArgsFunction: completeUpTo(math.MaxInt, &f.conn),
	}
	fs := cmd.Flags()
	fs.BoolVar(&f.all, "all", false, "all tags, and end a loss of all tags")
	fs.Int64Var(&f.maxID, "max-id", 0, "next `ID` of each tag, at least: all IDs that your services got are below")
	fs.StringSliceVar(&f.without, "without", nil, "`NODE` that need not be heard, because its data folder is lost (repeatable)")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("max-id") && f.maxID < 1 {
			return usagef("--max-id is %d, not at least 1", f.maxID)
		}
		return nil
	}
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
	var loss error
	if err == nil && f.all && len(done.Failed) == 0 && cmd.Context().Err() == nil {
		done.LossEnded, loss = endLoss(cmd.Context(), c, f.without)
		if done.LossEnded && !f.json {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "the loss of all tags has ended: a name without a record is new from now on")
		}
	}
	if err == nil && f.json {
		err = printJSON(cmd.OutOrStdout(), done)
	}
	switch {
	case err != nil:
		return err
	case cmd.Context().Err() != nil:
		return fmt.Errorf("interrupted: %d of %d tags were advanced", len(done.Tags), len(tags))
	}
	return errors.Join(done.error("advanced", len(tags)), loss)
}

// endLoss ends a loss of all tags. A generator reads what all others know before it does.
func endLoss(ctx context.Context, c *admin.Client, without []string) (ended bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, missingTimeout)
	defer cancel()
	return c.EndLoss(ctx, admin.EndLossRequest{Without: without})
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
	err = forMany(cmd, tags, advanceAtOnce, quiet, func(ctx context.Context, tag string) (admin.TagAdvance, error) {
		req := admin.AdvanceRequest{Tag: tag, Without: f.without}
		if f.maxID > 0 {
			req.MaxID = (*bus.ID)(&f.maxID)
		}
		return c.AdvanceTag(ctx, req)
	}, func(tag string, t admin.TagAdvance, err error) error {
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
	if t.Was == t.MaxID {
		return fmt.Sprintf("%d unchanged", t.MaxID)
	}
	return fmt.Sprintf("%d → %d", t.Was, t.MaxID)
}
