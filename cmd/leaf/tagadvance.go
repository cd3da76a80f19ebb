package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/cli"
)

// advanceFlags say which tags to advance.
type advanceFlags struct {
	cli.Client
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
	cmd := f.Command(&cobra.Command{
		Use:   "advance [TAG...]",
		Short: "Move tags above all IDs that are known to be in use",
		Long: `Move max_id of tags above all IDs that are known to be in use: by the tag's record, by
every generator that runs, and by the last refill event of the tag. It never moves
max_id down, and it is safe to repeat.

With --all it takes all tags, names those that have no record, and ends a loss of all
tags. docs/operate.md says when to use it.`,
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
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("max-id") {
				return cli.AtLeast("max-id", f.maxID, 1)
			}
			return nil
		},
		ValidArgsFunction: f.CompleteTags(math.MaxInt),
	}, f.run)
	cmd.Flags().BoolVar(&f.all, "all", false, "all tags, and end a loss of all tags")
	cmd.Flags().Int64Var(&f.maxID, "max-id", 0, "next `ID` of each tag, at least: all IDs that your services got "+
		"are below")
	cmd.Flags().StringSliceVar(&f.without, "without", nil, "`NODE` that need not be heard, because its data folder "+
		"is lost (repeatable)")
	return cmd
}

func (f *advanceFlags) run(s *cli.Session, tags []string) error {
	done := advances{Tags: []admin.TagAdvance{}, Missing: []admin.MissingTag{}, tagFailures: newTagFailures()}
	if f.all {
		all, err := allTags(s.Context(), s.Admin, admin.PageRequest{})
		if err != nil {
			return err
		}
		if n := len(all.Unserved); n > 0 {
			fmt.Fprintf(s.Cmd.ErrOrStderr(), "leaf: tags that are not served stay as they are: %d (`leaf tag list` "+
				"shows why)\n", n)
		}
		for _, t := range all.Tags {
			tags = append(tags, t.Tag)
		}
		missing, err := missingTags(s.Context(), s.Admin)
		if err != nil {
			return err
		}
		warnMissing(s, missing)
		done.Missing = missing.Tags
	}
	err := f.advance(s, tags, &done)
	var unheard []string
	strict := 0
	for _, t := range done.Tags {
		unheard = append(unheard, t.Unheard...)
		if t.Order == bus.OrderStrict {
			strict++
		}
	}
	warnStrict(s, strict)
	warnUnheard(s, unheard)
	var loss error
	if err == nil && f.all && len(done.Failed) == 0 && s.Context().Err() == nil {
		ctx, cancel := context.WithTimeout(s.Context(), missingTimeout)
		// it reads what all others know
		done.LossEnded, loss = s.Admin.EndLoss(ctx, admin.EndLossRequest{Without: f.without})
		cancel()
		if done.LossEnded && !s.JSON {
			_, err = fmt.Fprintln(s.Out(), "the loss of all tags has ended: a name without a record is new from now on")
		}
	}
	if err == nil && s.JSON {
		err = cli.PrintJSON(s.Out(), done)
	}
	switch {
	case err != nil:
		return err
	case s.Context().Err() != nil:
		return fmt.Errorf("interrupted: %d of %d tags were advanced", len(done.Tags), len(tags))
	}
	return errors.Join(done.error("advanced", len(tags)), loss)
}

// advance advances the tags, and prints the results in the order of the tags. The error is one of printing.
func (f *advanceFlags) advance(s *cli.Session, tags []string, done *advances) error {
	return forMany(s, tags, func(ctx context.Context, tag string) (admin.TagAdvance, error) {
		req := admin.AdvanceRequest{Tag: tag, Without: f.without}
		if f.maxID > 0 {
			req.MaxID = (*bus.ID)(&f.maxID)
		}
		return s.Admin.AdvanceTag(ctx, req)
	}, func(tag string, t admin.TagAdvance, err error) error {
		if err != nil {
			done.add(tag, err)
			return nil
		}
		done.Tags = append(done.Tags, t)
		switch {
		case s.JSON:
		case t.Was == t.MaxID:
			_, err = fmt.Fprintf(s.Out(), "%s %d unchanged\n", tag, t.MaxID)
		default:
			_, err = fmt.Fprintf(s.Out(), "%s %d → %d\n", tag, t.Was, t.MaxID)
		}
		return err
	})
}
