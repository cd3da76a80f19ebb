package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
)

func newTagCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tag",
		Short: "Create, list and change tags",
		Long: `Create, list and change tags. A tag is a sequence of IDs of its own, one
for each kind of thing that you number.`,
		Example: `  leaf tag add order --step 1000 --description 'orders of the shop'
  leaf tag list
  leaf tag set order --max-id 5000000`,
	}
	cmd.AddCommand(newTagAddCmd(), newTagListCmd(), newTagShowCmd(), newTagSetCmd(), newTagAdvanceCmd(), newTagRmCmd())
	return cmd
}

// tagCommand completes cmd, which asks about the tag in its argument, or changes it. It prints the tag,
// or what done makes of its name and max_id.
func (f *clientFlags) tagCommand(
	cmd *cobra.Command, done string, ask func(context.Context, *bus.Client, string) (bus.TagChange, error),
) *cobra.Command {
	cmd.Args = cobra.ExactArgs(1)
	return f.command(cmd, func(cmd *cobra.Command, c *bus.Client, args []string) error {
		t, err := ask(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		warnUnheard(cmd.ErrOrStderr(), t.Unheard)
		switch {
		case f.json:
			return printJSON(cmd.OutOrStdout(), t)
		case done != "":
			_, err := fmt.Fprintf(cmd.OutOrStdout(), done, t.Tag, t.MaxID)
			return err
		}
		return printTags(cmd, t.TagRecord)
	})
}

// warnUnheard warns of generators that may not know of a change.
func warnUnheard(w io.Writer, nodes []string) {
	if len(nodes) > 0 {
		fmt.Fprintf(w, "warning: these generators fell silent in the last hour: %s. "+
			"One that still runs may hand out IDs as before this change until it reaches NATS again: stop it. Ignore those that were killed\n",
			strings.Join(nodes, ", "))
	}
}

func printTags(cmd *cobra.Command, tags ...bus.TagRecord) error {
	rows := make([][]string, len(tags))
	for i, t := range tags {
		rows[i] = []string{t.Tag, strconv.FormatInt(int64(t.MaxID), 10), strconv.FormatInt(t.Step, 10), local(t.Updated), t.Description}
	}
	return printTable(cmd.OutOrStdout(), []string{"TAG", "MAX_ID", "STEP", "UPDATED", "DESCRIPTION"}, rows)
}

// tagFields are the flags for the fields of a tag.
type tagFields struct {
	step, maxID int64
	description string
}

func (f *tagFields) register(cmd *cobra.Command) {
	cmd.Flags().Int64Var(&f.step, "step", 0, "least number of IDs that a generator reserves at a time")
	cmd.Flags().Int64Var(&f.maxID, "max-id", 0, "next `ID` to be reserved; it only moves forward")
	cmd.Flags().StringVar(&f.description, "description", "", "what it is for")
}

// check refuses what no generator can read.
func (f *tagFields) check(cmd *cobra.Command, _ []string) error {
	if cmd.Flags().Changed("max-id") && f.maxID < 1 {
		return usagef("--max-id is %d, not at least 1", f.maxID)
	}
	return nil
}

// given returns the fields that were given, nil for the others.
func (f *tagFields) given(cmd *cobra.Command) (u bus.TagUpdate) {
	if cmd.Flags().Changed("step") {
		u.Step = &f.step
	}
	if cmd.Flags().Changed("max-id") {
		u.MaxID = (*bus.ID)(&f.maxID)
	}
	if cmd.Flags().Changed("description") {
		u.Description = &f.description
	}
	return u
}

func newTagAddCmd() *cobra.Command {
	var f clientFlags
	var fields tagFields
	cmd := &cobra.Command{
		Use:     "add TAG",
		Aliases: []string{"create"},
		Short:   "Create a tag",
		Long: `Create a tag. It starts at --max-id (default 1) with --step (default 1000). A tag
that was deleted before continues above all IDs that it ever had.`,
		Example: `  leaf tag add order
  leaf tag add legacy.users --max-id 7000001 --step 100`,
		PreRunE: fields.check,
	}
	fields.register(cmd)
	return f.tagCommand(cmd, "", func(ctx context.Context, c *bus.Client, tag string) (bus.TagChange, error) {
		u := fields.given(cmd)
		return c.CreateTag(ctx, bus.TagCreate{Tag: tag, Step: u.Step, MaxID: u.MaxID, Description: fields.description})
	})
}

func newTagListCmd() *cobra.Command {
	var f clientFlags
	var req bus.PageRequest
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the tags and how far they are",
		Example: `  leaf tag list
  leaf tag list --prefix shop. --json
  leaf tag list --contains refund`,
	}
	cmd.Flags().StringVar(&req.Prefix, "prefix", "", "only tags that start with `TEXT`")
	cmd.Flags().StringVar(&req.Contains, "contains", "", "only tags that have `TEXT` anywhere in them; letters' case counts")
	return f.command(cmd, func(cmd *cobra.Command, c *bus.Client, _ []string) error {
		all := bus.TagsPage{Tags: []bus.TagRecord{}}
		err := eachPage(cmd.Context(), c, req, func(page bus.TagsPage) {
			all.Tags = append(all.Tags, page.Tags...)
			all.Unserved = append(all.Unserved, page.Unserved...)
		})
		if err != nil {
			return err
		}
		if f.json {
			return printJSON(cmd.OutOrStdout(), all)
		}
		for _, t := range all.Unserved {
			t.Description = "NOT SERVED: " + t.Problem
			all.Tags = append(all.Tags, t.TagRecord)
		}
		return printTags(cmd, all.Tags...)
	})
}

// eachPage calls do with each page of the tags.
func eachPage(ctx context.Context, c *bus.Client, req bus.PageRequest, do func(bus.TagsPage)) error {
	for more := true; more; more = req.After != "" {
		page, err := c.Tags(ctx, req)
		if err != nil {
			return err
		}
		do(page)
		req.After = page.Next
	}
	return nil
}

func newTagShowCmd() *cobra.Command {
	var f clientFlags
	cmd := &cobra.Command{
		Use:     "show TAG",
		Aliases: []string{"info"},
		Short:   "Show a tag",
		Example: `  leaf tag show order
  leaf tag show order --json`,
		ValidArgsFunction: completeTags(&f.conn),
	}
	return f.tagCommand(cmd, "", func(ctx context.Context, c *bus.Client, tag string) (t bus.TagChange, err error) {
		t.TagRecord, err = c.Tag(ctx, tag)
		return t, err
	})
}

func newTagSetCmd() *cobra.Command {
	var f clientFlags
	var fields tagFields
	cmd := &cobra.Command{
		Use:     "set TAG",
		Aliases: []string{"edit"},
		Short:   "Change a tag",
		Long: `Change a tag. A new --max-id is in force when the command returns: every
generator that is heard has dropped its IDs below. A warning names the generators
that are not heard. A max-id only moves forward.`,
		Example: `  leaf tag set order --max-id 5000000
  leaf tag set order --step 20000 --description 'orders of all shops'`,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if fields.given(cmd) == (bus.TagUpdate{}) {
				return usagef("nothing to change: give --max-id, --step or --description")
			}
			return fields.check(cmd, nil)
		},
		ValidArgsFunction: completeTags(&f.conn),
	}
	fields.register(cmd)
	return f.tagCommand(cmd, "", func(ctx context.Context, c *bus.Client, tag string) (bus.TagChange, error) {
		u := fields.given(cmd)
		u.Tag = tag
		return c.UpdateTag(ctx, u)
	})
}

func newTagRmCmd() *cobra.Command {
	var f clientFlags
	return f.tagCommand(&cobra.Command{
		Use:     "rm TAG",
		Aliases: []string{"delete", "remove"},
		Short:   "Delete a tag",
		Long: `Delete a tag: requests for it are refused from now on. How far it was is kept, so
that a tag of that name, created later, continues above.`,
		Example:           `  leaf tag rm order`,
		ValidArgsFunction: completeTags(&f.conn),
	}, "deleted %s; it was at %d\n", func(ctx context.Context, c *bus.Client, tag string) (bus.TagChange, error) {
		return c.DeleteTag(ctx, tag)
	})
}
