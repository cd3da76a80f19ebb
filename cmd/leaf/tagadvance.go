package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/cli"
)

// advances is a run of leaf tag advance, and what it reports as JSON.
type advances struct {
	Tags []admin.TagAdvance `json:"tags"`
	// Missing are, with --all, the tags that generators or events know and that have no record.
	Missing []admin.KnownTag `json:"missing"`
	// LossEnded: the tags were lost, and that has ended.
	LossEnded bool        `json:"loss_ended"`
	Failed    []failedTag `json:"failed"`

	all bool
	req admin.AdvanceRequest // of each tag
}

func newTagAdvanceCmd() *cobra.Command {
	var f cli.Client
	var maxID int64
	a := advances{Tags: []admin.TagAdvance{}, Missing: []admin.KnownTag{}} // in JSON [], not null
	cmd := f.Command(&cobra.Command{
		Use:   "advance [TAG...]",
		Short: "Move tags above all IDs that are known to be in use",
		Long: `Move max_id of tags above all IDs that records, running generators and events know. It
is safe to repeat. With --all it takes all tags, names those that have no record, and
ends a loss of all tags. docs/operate.md says when to use it.`,
		Example: `  leaf tag advance order
  leaf tag advance order --max-id 5000000
  leaf tag advance --all
  leaf tag advance --all --without leaf-2
  leaf tag advance --all --json > advanced.json`,
		Args: func(_ *cobra.Command, tags []string) error {
			if a.all == (len(tags) > 0) {
				return errors.New("name the tags, or give --all for all of them")
			}
			return nil
		},
	}, func(s *cli.Session, tags []string) error {
		if maxID > 0 {
			a.req.MaxID = (*bus.ID)(&maxID)
		}
		return a.run(s, tags)
	})
	cmd.Flags().BoolVar(&a.all, "all", false, "all tags, and end a loss of all tags")
	cli.Number(cmd.Flags(), &maxID, "max-id", 0, 1, math.MaxInt64, "next `ID` of each tag, at least")
	cmd.Flags().StringSliceVar(&a.req.Without, "without", nil, "`NODE` that need not be heard: its folder is lost")
	return cmd
}

func (a *advances) run(s *cli.Session, tags []string) (err error) {
	if a.all {
		if tags, err = a.whole(s); err != nil {
			return err
		}
	}
	var unheard []string
	strict := 0
	var problem error
	a.Failed, problem = forMany(s, tags, "advanced", func(tag string) string { return tag },
		func(ctx context.Context, tag string) (admin.TagAdvance, error) {
			req := a.req
			req.Tag = tag
			return s.Admin.AdvanceTag(ctx, req)
		}, func(t admin.TagAdvance) {
			a.Tags, unheard = append(a.Tags, t), append(unheard, t.Unheard...)
			if t.Order == idspace.OrderStrict {
				strict++
			}
			change := fmt.Sprintf("%d → %d", t.Was, t.MaxID)
			if t.Was == t.MaxID {
				change = fmt.Sprintf("%d unchanged", t.MaxID)
			}
			s.Sayf("%s %s\n", t.Tag, change)
		})
	warnStrict(s, strict)
	warnUnheard(s, unheard)
	if a.all && problem == nil {
		ctx, cancel := context.WithTimeout(s.Context(), missingTimeout) // it reads what all others know
		a.LossEnded, problem = s.Admin.EndLoss(ctx, admin.EndLossRequest{Without: a.req.Without})
		cancel()
		if a.LossEnded {
			s.Sayf("the loss of all tags has ended: a name without a record is new from now on\n")
		}
	}
	if s.JSON {
		err = cli.PrintJSON(s.Out, a)
	}
	return cmp.Or(err, problem)
}

// whole returns the names of all tags, and warns of those that have no record.
func (a *advances) whole(s *cli.Session) (tags []string, err error) {
	all, err := allTags(s.Context(), s.Admin, admin.PageRequest{})
	if err != nil {
		return nil, err
	}
	warnUnserved(s, all)
	missing, err := missingTags(s.Context(), s.Admin)
	if err != nil {
		return nil, err
	}
	warnMissing(s, missing)
	a.Missing = missing.Tags
	for _, t := range all.Tags {
		tags = append(tags, t.Tag)
	}
	return tags, nil
}
