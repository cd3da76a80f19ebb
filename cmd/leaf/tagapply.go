package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/cli"
)

// applied is what leaf tag apply did to a tag, or would do.
type applied struct {
	Tag     string   `json:"tag"`
	Created bool     `json:"created"`
	Changes []string `json:"changes,omitempty"` // of a tag that existed; none: it is as the file wants it

	unheard []string
}

// applications is what leaf tag apply reports as JSON.
type applications struct {
	Tags      []applied   `json:"tags"` // without those that are unchanged
	Unchanged int         `json:"unchanged"`
	DryRun    bool        `json:"dry_run"`
	Failed    []failedTag `json:"failed"`

	created int
	force   bool
}

func newTagApplyCmd() *cobra.Command {
	var f cli.Client
	var file string
	var specs []admin.TagSpec
	all := applications{Tags: []applied{}}
	cmd := f.Command(&cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create and change the tags of a file",
		Long: `Create the tags of a YAML file that do not exist, and change those that differ. A
max_id is never lowered, and no tag is deleted. If a line is wrong, nothing changes.
docs/tags.md has the fields:
  tags:
    - {tag: order, step: 20000, quota: 1000/s}
    - {tag: invoice, order: strict, max_id: 7000001}`,
		Example: `  leaf tag apply -f tags.yaml --dry-run
  leaf tag apply -f tags.yaml
  leaf tag export | ssh other leaf tag apply -f -`,
		PreRunE: func(cmd *cobra.Command, _ []string) (err error) { // before anything is asked of a generator
			from := cmd.InOrStdin()
			if file == "" {
				return errors.New("-f is missing: it names the file with the tags, - for the standard input")
			}
			if file != "-" {
				opened, err := os.Open(file)
				if err != nil {
					return fmt.Errorf("-f: %w", err)
				}
				defer opened.Close()
				from = opened
			}
			if specs, err = readTagFile(from); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			return nil
		},
	}, func(s *cli.Session, _ []string) error { return all.run(s, specs) })
	cmd.Flags().StringVarP(&file, "file", "f", "", "`FILE` with the tags; - is the standard input")
	cmd.Flags().BoolVar(&all.force, "force", false, "also if most IDs of a tag are lost: see docs/tags.md#typos")
	cmd.Flags().BoolVar(&all.DryRun, "dry-run", false, "change nothing: print what would be done")
	return cmd
}

func (all *applications) run(s *cli.Session, specs []admin.TagSpec) (err error) {
	var unheard []string
	would, done := "", "d"
	if all.DryRun {
		would, done = "would ", ""
	}
	var problem error
	all.Failed, problem = forMany(s, specs, "applied", func(want admin.TagSpec) string { return want.Tag },
		func(ctx context.Context, want admin.TagSpec) (applied, error) {
			want.Force = all.force
			return all.apply(ctx, s.Admin, want)
		}, func(a applied) {
			unheard = append(unheard, a.unheard...)
			verb := "change"
			switch {
			case !a.Created && len(a.Changes) == 0:
				all.Unchanged++
				return
			case a.Created:
				all.created++
				verb = "create"
			}
			all.Tags = append(all.Tags, a)
			line := strings.TrimSuffix(would+verb+done+" "+a.Tag+": "+strings.Join(a.Changes, ", "), ": ")
			s.Sayf("%s\n", cli.Safe(line))
		})
	warnUnheard(s, unheard)
	format := "%d tags: %d created, %d changed, %d unchanged, %d failed\n"
	if all.DryRun {
		format = "nothing was done. %d tags: %d to create, %d to change, %d unchanged, %d would fail\n"
	}
	err = s.Print(all, func(w io.Writer) {
		fmt.Fprintf(w, format, len(all.Tags)+all.Unchanged+len(all.Failed), all.created, len(all.Tags)-all.created,
			all.Unchanged, len(all.Failed))
	})
	return cmp.Or(err, problem)
}

// apply makes a tag as the file wants it.
func (all *applications) apply(ctx context.Context, c *admin.Client, want admin.TagSpec) (a applied, err error) {
	a.Tag = want.Tag
	var done admin.TagRecord
	is, err := c.Tag(ctx, want.Tag)
	switch a.Created = errors.Is(err, bus.UnknownTag); {
	case a.Created && all.DryRun:
		return a, nil
	case a.Created:
		done, err = c.CreateTag(ctx, want)
	case err != nil:
		return a, err
	default:
		if a.Changes, err = merge(&want, is); err != nil || len(a.Changes) == 0 {
			return a, err
		}
		if all.DryRun && !want.Force {
			was := allocator.Tag{MaxID: int64(is.MaxID), Rules: allocator.Rules{Limit: int64(is.Limit)}}
			return a, was.CheckLoss(allocator.Change{MaxID: (*int64)(want.MaxID), RulesChange: want.RulesChange})
		}
		if !all.DryRun {
			done, err = c.UpdateTag(ctx, want)
		}
	}
	a.unheard = done.Unheard
	return a, err
}

// merge leaves in a spec what changes a tag, or changes nothing, and returns the changes in words.
// A generator does the rest, as for leaf tag set.
func merge(want *admin.TagSpec, is admin.TagRecord) (changes []string, err error) {
	if order := cmp.Or(is.Order, idspace.OrderTrend); want.Order != "" && want.Order != order {
		return nil, fmt.Errorf("its order is %s, for life: give the %s tag another name", order, want.Order)
	}
	if want.Opaque != "" && want.Opaque != is.Opaque {
		domain := cmp.Or(is.Opaque, "none")
		return nil, fmt.Errorf("its domain is %s, for life: give the opaque tag another name", domain)
	}
	want.Order, want.Opaque = "", ""
	note := func(given bool, field string, was any, wanted func() any) {
		if given && was != wanted() {
			changes = append(changes, fmt.Sprintf("%s %s → %s", field, shown(was), shown(wanted())))
		}
	}
	if want.MaxID != nil && *want.MaxID <= is.MaxID {
		want.MaxID = nil // it is never lowered, and the same one would cost what generators have in memory
	}
	note(want.MaxID != nil, "max_id", is.MaxID, func() any { return *want.MaxID })
	note(want.Step != nil, "step", is.Step, func() any { return *want.Step })
	if want.Description != nil && *want.Description != is.Description {
		changes = append(changes, "description")
	}
	note(want.Quota != nil, "quota", is.Quota, func() any {
		return idspace.Quota{PerSecond: want.Quota.PerSecond, Burst: cmp.Or(want.Quota.Burst, want.Quota.PerSecond)}
	})
	note(want.Paused != nil, "paused", is.Paused, func() any { return *want.Paused })
	note(want.Outlast != nil, "outlast", is.Outlast, func() any { return *want.Outlast })
	note(want.Limit != nil, "limit", is.Limit, func() any { return bus.ID(*want.Limit) })
	return changes, nil
}
