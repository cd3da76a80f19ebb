package main

import (
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
	"github.com/leafbus/leafbus/internal/cli"
)

// applyFlags say which file to apply.
type applyFlags struct {
	cli.Client
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

	created int
	unheard []string
}

func newTagApplyCmd() *cobra.Command {
	var f applyFlags
	var specs []admin.TagSpec
	cmd := f.Command(&cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create and change the tags of a file",
		Long: `Create the tags of a YAML file that do not exist, and change those that differ. What
the file leaves out stays as it is, and "none" or 0 removes quota, outlast and limit. A
max_id is never lowered, and no tag is deleted. The whole file is read first: if a line
is wrong, nothing changes. docs/tags.md has the fields:

  tags:
    - {tag: order, step: 20000, quota: 1000/s}
    - {tag: invoice, order: strict, max_id: 7000001}`,
		Example: `  leaf tag apply -f tags.yaml --dry-run
  leaf tag apply -f tags.yaml
  leaf tag export | ssh other leaf tag apply -f -`,
	}, func(s *cli.Session, _ []string) error { return f.run(s, specs) })
	cmd.Flags().StringVarP(&f.file, "file", "f", "", "`FILE` with the tags; - is the standard input")
	cmd.Flags().BoolVar(&f.force, "force", false, "also if most IDs of a tag are lost: see docs/tags.md#typos")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "change nothing: print what would be done")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		specs, err = f.read(cmd.InOrStdin()) // before anything is asked of a generator
		return err
	}
	return cmd
}

func (f *applyFlags) read(stdin io.Reader) ([]admin.TagSpec, error) {
	from, name := stdin, "the standard input"
	switch f.file {
	case "":
		return nil, errors.New("-f is missing: it names the file with the tags, - for the standard input")
	case "-":
	default:
		file, err := os.Open(f.file)
		if err != nil {
			return nil, fmt.Errorf("-f: %w", err)
		}
		defer file.Close()
		from, name = file, f.file
	}
	specs, err := readTagFile(from)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return specs, nil
}

func (f *applyFlags) run(s *cli.Session, specs []admin.TagSpec) error {
	all := applications{Tags: []applied{}, DryRun: f.dryRun, tagFailures: newTagFailures()}
	err := forMany(s, specs, func(ctx context.Context, want admin.TagSpec) (applied, error) {
		want.Force = f.force
		return f.apply(ctx, s.Admin, want)
	}, func(want admin.TagSpec, a applied, err error) error {
		all.unheard = append(all.unheard, a.unheard...)
		switch {
		case err != nil:
			all.add(want.Tag, err)
			return nil
		case !a.Created && len(a.Changes) == 0:
			all.Unchanged++
			return nil
		case a.Created:
			all.created++
		}
		all.Tags = append(all.Tags, a)
		if s.JSON {
			return nil
		}
		_, err = fmt.Fprintln(s.Out(), a.line(f.dryRun))
		return err
	})
	warnUnheard(s, all.unheard)
	if err == nil {
		err = s.Print(all, func(w io.Writer) error { _, err := fmt.Fprintln(w, all.summary()); return err })
	}
	switch {
	case err != nil:
		return err
	case s.Context().Err() != nil:
		return fmt.Errorf("interrupted: %d of %d tags were applied. Apply the file again",
			len(all.Tags)+all.Unchanged, len(specs))
	}
	return all.error("applied", len(specs))
}

// summary is the last line.
func (all *applications) summary() string {
	format := "%d tags: %d created, %d changed, %d unchanged, %d failed"
	if all.DryRun {
		format = "nothing was done. %d tags: %d to create, %d to change, %d unchanged, %d would fail"
	}
	done, failed := len(all.Tags), len(all.Failed)
	return fmt.Sprintf(format, done+all.Unchanged+failed, all.created, done-all.created, all.Unchanged, failed)
}

// line says what was done to a tag.
func (a applied) line(dryRun bool) string {
	word := map[bool]string{true: "created", false: "changed"}[a.Created]
	if dryRun {
		word = "would " + strings.TrimSuffix(word, "d")
	}
	if len(a.Changes) == 0 {
		return word + " " + a.Tag
	}
	return cli.Safe(word + " " + a.Tag + ": " + strings.Join(a.Changes, ", "))
}

// apply makes a tag as the file wants it. It reads the tag again if somebody else changed it in between.
func (f *applyFlags) apply(ctx context.Context, c *admin.Client, want admin.TagSpec) (a applied, err error) {
	for range 3 {
		a = applied{Tag: want.Tag}
		var done admin.TagRecord
		moved := false // max_id, by somebody else: or it is a typo
		is, missing := c.Tag(ctx, want.Tag)
		switch a.Created = errors.Is(missing, bus.UnknownTag); {
		case a.Created && f.dryRun:
			return a, nil
		case a.Created:
			done, err = c.CreateTag(ctx, want)
		case missing != nil:
			return a, missing
		default:
			update := want
			if a.Changes, err = merge(&update, is); err != nil || len(a.Changes) == 0 {
				return a, err
			}
			if f.dryRun {
				return a, f.checkLoss(update, is)
			}
			done, err = c.UpdateTag(ctx, update)
			moved = errors.Is(err, bus.Conflict) && update.MaxID != nil
		}
		a.unheard = done.Unheard
		if !errors.Is(err, bus.Exists) && !errors.Is(err, bus.UnknownTag) && !moved {
			break
		}
	}
	return a, err
}

// checkLoss returns the error of a change that needs --force.
func (f *applyFlags) checkLoss(u admin.TagSpec, is admin.TagRecord) error {
	if f.force {
		return nil
	}
	was := allocator.Tag{MaxID: int64(is.MaxID), Rules: allocator.Rules{Limit: int64(is.Limit)}}
	return was.CheckLoss(allocator.Change{MaxID: (*int64)(u.MaxID), RulesChange: u.RulesChange})
}
