package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
)

// applyAtOnce is how many tags are applied at a time.
const applyAtOnce = 16

// applyFlags say which file to apply.
type applyFlags struct {
	clientFlags
	file          string
	dryRun, force bool
}

// applied is what leaf tag apply did to a tag, or would do.
type applied struct {
	Tag     string   `json:"tag"`
	Created bool     `json:"created"`
	Changes []string `json:"changes,omitempty"` // of a tag that existed; none: it is as the file wants it

	unheard []string
}

// applications is what leaf tag apply reports as JSON.
type applications struct {
	Tags      []applied `json:"tags"` // without those that are unchanged
	Unchanged int       `json:"unchanged"`
	DryRun    bool      `json:"dry_run"`
	tagFailures

	unheard []string
}

func newTagApplyCmd() *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create and change the tags of a file",
		Long: `Create the tags of a YAML file that do not exist, and change those that differ. "-"
is the standard input. The output of leaf tag export is such a file:

  tags:
    - tag: order
      step: 20000
      description: orders of the shop
    - tag: invoice
      order: strict           # trend or strict, for life
      max_id: 7000001         # the next ID, at least
      limit: 2147483647
      paused: false
    - tag: coupon
      quota: {per_second: 1000, burst: 5000}
      outlast: 1h
    - tag: voucher
      opaque: 53              # 63, 53 or d9 to d18, for life

What the file leaves out stays as it is; "none" or 0 removes quota, outlast and limit.
A max_id is never lowered, and no tag is deleted.

The whole file is read first: if a line is wrong, nothing changes. If a tag fails, for
example because its order is another one, the others go on. The failures come at the
end, with exit status 1. It is safe to repeat.`,
		Example: `  leaf tag apply -f tags.yaml --dry-run
  leaf tag apply -f tags.yaml
  leaf tag export | ssh other leaf tag apply -f -`,
	}
	fs := cmd.Flags()
	fs.StringVarP(&f.file, "file", "f", "", "`FILE` with the tags; - is the standard input")
	registerForce(fs, &f.force)
	fs.BoolVar(&f.dryRun, "dry-run", false, "change nothing: print what would be done")
	var specs []tagSpec
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		specs, err = f.read(cmd.InOrStdin())
		return err
	}
	return f.command(cmd, func(cmd *cobra.Command, c *admin.Client, _ []string) error { return f.run(cmd, c, specs) })
}

// read reads the file. Before anything is asked of a generator: a file that cannot be read changes nothing.
func (f *applyFlags) read(stdin io.Reader) ([]tagSpec, error) {
	if f.file == "" {
		return nil, usagef("-f is missing: it names the file with the tags, - for the standard input")
	}
	from, name := stdin, "the standard input"
	if f.file != "-" {
		file, err := os.Open(f.file)
		if err != nil {
			return nil, usagef("-f: %w", err)
		}
		defer file.Close()
		from, name = file, f.file
	}
	specs, err := readTagFile(from)
	if err != nil {
		return nil, usagef("%s: %w", name, err)
	}
	return specs, nil
}

func (f *applyFlags) run(cmd *cobra.Command, c *admin.Client, specs []tagSpec) error {
	all := applications{Tags: []applied{}, DryRun: f.dryRun, tagFailures: tagFailures{Failed: []failedTag{}}}
	quiet := !f.json && isTerminal(cmd.OutOrStdout())
	err := forMany(cmd, specs, applyAtOnce, quiet, func(ctx context.Context, s tagSpec) (applied, error) {
		return f.apply(ctx, c, s)
	}, func(s tagSpec, a applied, err error) error {
		if err != nil {
			all.add(s.Tag, err)
			return nil
		}
		all.note(a)
		if f.json || !a.Created && len(a.Changes) == 0 {
			return nil
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), a.line(f.dryRun))
		return err
	})
	slices.Sort(all.unheard)
	warnUnheard(cmd.ErrOrStderr(), slices.Compact(all.unheard))
	if err == nil && f.json {
		err = printJSON(cmd.OutOrStdout(), all)
	} else if err == nil {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), all.summary())
	}
	switch {
	case err != nil:
		return err
	case cmd.Context().Err() != nil:
		return fmt.Errorf("interrupted: %d of %d tags were applied. Apply the file again", len(all.Tags)+all.Unchanged, len(specs))
	}
	return all.error("applied", len(specs))
}

// note counts what was done.
func (all *applications) note(a applied) {
	all.unheard = append(all.unheard, a.unheard...)
	if !a.Created && len(a.Changes) == 0 {
		all.Unchanged++
		return
	}
	all.Tags = append(all.Tags, a)
}

// summary is the last line.
func (all *applications) summary() string {
	created := 0
	for _, a := range all.Tags {
		if a.Created {
			created++
		}
	}
	format := "%d tags: %d created, %d changed, %d unchanged, %d failed"
	if all.DryRun {
		format = "nothing was done. %d tags: %d to create, %d to change, %d unchanged, %d would fail"
	}
	changed, failed := len(all.Tags)-created, len(all.Failed)
	return fmt.Sprintf(format, len(all.Tags)+all.Unchanged+failed, created, changed, all.Unchanged, failed)
}

// line says what was done to a tag.
func (a applied) line(dryRun bool) string {
	word := "changed"
	switch {
	case dryRun && a.Created:
		word = "would create"
	case dryRun:
		word = "would change"
	case a.Created:
		word = "created"
	}
	line := word + " " + a.Tag
	if len(a.Changes) > 0 {
		line += ": " + strings.Join(a.Changes, ", ")
	}
	return strings.Map(printable, line)
}

// apply makes a tag as the file wants it. It reads the tag again if somebody else changed it in between.
func (f *applyFlags) apply(ctx context.Context, c *admin.Client, s tagSpec) (a applied, err error) {
	for range 3 {
		a = applied{Tag: s.Tag}
		var update admin.TagUpdate
		t, missing := c.Tag(ctx, s.Tag)
		switch {
		case errors.Is(missing, bus.UnknownTag):
			a.Created = true
		case missing != nil:
			return a, missing
		case s.order != "" && s.order != cmp.Or(t.Order, bus.OrderTrend):
			return a, fmt.Errorf("its order is %s, for life: give the %s tag another name", cmp.Or(t.Order, bus.OrderTrend), s.order)
		case s.opaque != "" && s.opaque != t.Opaque:
			return a, fmt.Errorf("its domain is %s, for life: give the opaque tag another name", cmp.Or(t.Opaque, "none"))
		default:
			if update, a.Changes = s.difference(t); len(a.Changes) == 0 {
				return a, nil
			}
		}
		if f.dryRun && !f.force && !a.Created {
			is := allocator.Tag{MaxID: int64(t.MaxID), Rules: allocator.Rules{Limit: int64(t.Limit)}}
			err = is.CheckLoss(allocator.Change{MaxID: (*int64)(update.MaxID), RulesChange: update.RulesChange})
		}
		if f.dryRun {
			return a, err
		}
		var done admin.TagChange
		if a.Created {
			done, err = c.CreateTag(ctx, admin.TagCreate{
				Tag: s.Tag, MaxID: s.MaxID, Step: s.Step, Description: s.description(), Order: s.order, Opaque: s.opaque,
				RulesChange: s.RulesChange, Force: f.force})
		} else {
			update.Force = f.force
			done, err = c.UpdateTag(ctx, update)
		}
		a.unheard = done.Unheard
		if !errors.Is(err, bus.Exists) && !errors.Is(err, bus.UnknownTag) && !(errors.Is(err, bus.Conflict) && update.MaxID != nil) {
			break
		}
	}
	return a, err
}

func (s tagSpec) description() string {
	if s.Description == nil {
		return ""
	}
	return *s.Description
}

// difference returns the change that makes a tag as the file wants it, and that in words.
func (s tagSpec) difference(t admin.TagRecord) (u admin.TagUpdate, changes []string) {
	u.Tag = s.Tag
	note := func(field string, was, is any) {
		changes = append(changes, fmt.Sprintf("%s %s → %s", field, shown(was), shown(is)))
	}
	if s.MaxID != nil && *s.MaxID > t.MaxID {
		u.MaxID = s.MaxID
		note("max_id", t.MaxID, *s.MaxID)
	}
	if s.Step != nil && *s.Step != t.Step {
		u.Step = s.Step
		note("step", t.Step, *s.Step)
	}
	if s.Description != nil && *s.Description != t.Description {
		u.Description = s.Description
		changes = append(changes, "description")
	}
	if s.Quota != nil {
		if q := (allocator.Quota{PerSecond: s.Quota.PerSecond, Burst: cmp.Or(s.Quota.Burst, s.Quota.PerSecond)}); q != t.Quota {
			u.Quota = &q
			note("quota", t.Quota, q)
		}
	}
	if s.Paused != nil && *s.Paused != t.Paused {
		u.Paused = s.Paused
		note("paused", t.Paused, *s.Paused)
	}
	if s.Outlast != nil && *s.Outlast != t.Outlast {
		u.Outlast = s.Outlast
		note("outlast", t.Outlast, *s.Outlast)
	}
	if s.Limit != nil && bus.ID(*s.Limit) != t.Limit {
		u.Limit = s.Limit
		note("limit", t.Limit, bus.ID(*s.Limit))
	}
	return u, changes
}

// shown is the value of a field in a line for people.
func shown(v any) string {
	if q, ok := v.(allocator.Quota); ok && q.PerSecond > 0 {
		return fmt.Sprintf("%d/s burst %d", q.PerSecond, q.Burst)
	}
	if reflect.ValueOf(v).IsZero() && v != false {
		return "none"
	}
	return fmt.Sprint(v)
}
