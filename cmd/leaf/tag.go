package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
)

func newTagCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tag",
		Short: "Create, list and change tags",
		Long: `Create, list and change tags. A tag is a sequence of IDs with a name. Create
one for each kind of thing that you number, for example order and invoice.`,
		Example: `  leaf tag add order --step 1000 --description 'orders of the shop'
  leaf tag list
  leaf tag set order --max-id 5000000
  leaf tag pause order`,
	}
	cmd.AddCommand(newTagAddCmd(), newTagListCmd(), newTagShowCmd(), newTagSetCmd(), newTagPauseCmd(), newTagResumeCmd(), newTagAdvanceCmd(), newTagRevealCmd(), newTagRmCmd(),
		newTagApplyCmd(), newTagExportCmd())
	return cmd
}

// tagCommand completes cmd, which asks about the tag in its argument, or changes it. It prints the tag,
// or what done makes of its name and max_id.
func (f *clientFlags) tagCommand(
	cmd *cobra.Command, done string, ask func(context.Context, *admin.Client, string) (admin.TagChange, error),
) *cobra.Command {
	return f.command(cmd, func(cmd *cobra.Command, c *admin.Client, args []string) error {
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

func printTags(cmd *cobra.Command, tags ...admin.TagRecord) error {
	ruled := slices.ContainsFunc(tags, func(t admin.TagRecord) bool { return t.TagRules != (admin.TagRules{}) })
	head := []string{"TAG", "MAX_ID", "STEP", "UPDATED", "DESCRIPTION"}
	if ruled {
		head = slices.Insert(head, 4, "RULES")
	}
	concealed := slices.ContainsFunc(tags, func(t admin.TagRecord) bool { return t.Opaque != "" })
	if concealed {
		head = slices.Insert(head, 3, "OPAQUE")
	}
	rows := make([][]string, len(tags))
	for i, t := range tags {
		rows[i] = []string{t.Tag, strconv.FormatInt(int64(t.MaxID), 10), step(t), timeOf(t.Updated), t.Description}
		if ruled {
			rows[i] = slices.Insert(rows[i], 4, rules(t.TagRules))
		}
		if concealed {
			rows[i] = slices.Insert(rows[i], 3, t.Opaque)
		}
	}
	return printTable(cmd.OutOrStdout(), head, rows)
}

// rules is what a list shows as the rules of a tag.
func rules(r admin.TagRules) string {
	var parts []string
	add := func(is bool, format string, a ...any) {
		if is {
			parts = append(parts, fmt.Sprintf(format, a...))
		}
	}
	add(r.Paused, "paused")
	add(r.Quota.PerSecond > 0, "quota %d/s burst %d", r.Quota.PerSecond, r.Quota.Burst)
	add(r.Outlast > 0, "outlast %v", r.Outlast)
	add(r.Limit > 0, "limit %d", r.Limit)
	return strings.Join(parts, ", ")
}

// step is what a list shows as the step of a tag.
func step(t admin.TagRecord) string {
	if t.Order == bus.OrderStrict {
		return bus.OrderStrict
	}
	return strconv.FormatInt(t.Step, 10)
}

func newTagAddCmd() *cobra.Command {
	var f clientFlags
	var fields tagFields
	cmd := &cobra.Command{
		Use:     "add TAG",
		Aliases: []string{"create"},
		Short:   "Create a tag",
		Long: `Create a tag. It starts at --max-id (default 1) with --step (default 1000). A tag
that was deleted before continues above all IDs that it ever had.

With --order strict its IDs increase strictly, whichever generator answers: a
request that is sent after the answer to another one has arrived gets higher IDs.
Each request then waits for a write to JetStream, and the tag has no step.

With --opaque its IDs show neither how many there are nor in which order they were
made. --opaque=63 (default) takes all positive numbers, --opaque=53 those that
JavaScript holds exactly, --opaque=d9 to --opaque=d18 those with at most so many
decimal digits. max-id and events have the numbers behind the IDs: see "leaf tag
reveal". Take a backup with "leaf backup": if the master key (bucket LEAF_KEYS) is
lost, all opaque tags are refused for good.

A tag keeps its order and domain for life, also after it was deleted.`,
		Example: `  leaf tag add order
  leaf tag add invoice --order strict
  leaf tag add pin --opaque=d12
  leaf tag add legacy.users --max-id 7000001 --step 100
  leaf tag add seat --limit 2147483647`,
		PreRunE: fields.check,
	}
	fields.register(cmd)
	cmd.Flags().StringVar(&fields.order, "order", "", "`ORDER` of its IDs, for life: trend or strict (default trend)")
	completeValues(cmd, "order", bus.OrderTrend, bus.OrderStrict)
	cmd.Flags().StringVar(&fields.opaque, "opaque", "", "make its IDs opaque, in this `DOMAIN`, for life: 63, 53 or d9 to d18")
	cmd.Flags().Lookup("opaque").NoOptDefVal = string(opaque.Bits63)
	completeValues(cmd, "opaque", "63\tbits", "53\tbits, for JavaScript", "d9\tdecimal digits", "d12\tdecimal digits", "d18\tdecimal digits")
	return f.tagCommand(cmd, "", func(ctx context.Context, c *admin.Client, tag string) (admin.TagChange, error) {
		u := fields.given(cmd)
		t, err := c.CreateTag(ctx, admin.TagCreate{
			Tag: tag, Step: u.Step, MaxID: u.MaxID, Description: fields.description, Order: fields.order, Opaque: fields.opaque,
			RulesChange: u.RulesChange, Force: fields.force})
		if errors.Is(err, bus.Exists) {
			err = fmt.Errorf("%w: to change it, use `leaf tag set %s`", err, quoted(tag))
		}
		return t, err
	})
}

func newTagListCmd() *cobra.Command {
	var f clientFlags
	var req admin.PageRequest
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the tags and how far they are",
		Long: `List the tags and how far they are, sorted by name. For a strict tag, STEP is "strict":
such a tag has no step. OPAQUE is the domain of an opaque tag, whose MAX_ID is a
number and no ID. With --json each tag has its order, trend or strict.`,
		Example: `  leaf tag list
  leaf tag list --prefix shop. --json
  leaf tag list --contains refund`,
	}
	cmd.Flags().StringVar(&req.Prefix, "prefix", "", "only tags that start with `TEXT`")
	cmd.Flags().StringVar(&req.Contains, "contains", "", "only tags with `TEXT` anywhere in the name; upper and lower case differ")
	return f.command(cmd, func(cmd *cobra.Command, c *admin.Client, _ []string) error {
		all := admin.TagsPage{Tags: []admin.TagRecord{}}
		err := eachPage(cmd.Context(), c, req, func(page admin.TagsPage) {
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
func eachPage(ctx context.Context, c *admin.Client, req admin.PageRequest, do func(admin.TagsPage)) error {
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
	return f.tagCommand(cmd, "", func(ctx context.Context, c *admin.Client, tag string) (t admin.TagChange, err error) {
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
that are not heard. max-id never moves back. A strict tag has no step, and the
order of a tag cannot be changed.

A typo in max_id cannot be undone. So a max_id that jumps by more than 10^12 or beyond
half of the IDs that are left, and a --limit below max_id, need --force.

--quota is how many IDs a second all generators together hand out. Further requests
get quota_exceeded. Each generator has an equal share of it.
--outlast says how long the IDs in a generator's memory should last while the store
is unavailable. --limit is the largest ID, for columns that can hold no more:
2147483647 for a signed INT, 9007199254740991 for a number in JavaScript. The IDs in
memory above it are dropped, and an alert comes when 80 % are reserved. "none" removes
any of these.`,
		Example: `  leaf tag set order --max-id 5000000
  leaf tag set order --step 20000 --description 'orders of all shops'
  leaf tag set order --quota 1000/s --burst 5000
  leaf tag set order --outlast 1h
  leaf tag set invoice --limit 2147483647
  leaf tag set order --quota none`,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := fields.check(cmd, nil); err != nil {
				return err
			}
			if fields.given(cmd) == (admin.TagUpdate{}) {
				return usagef("nothing to change: give --max-id, --step, --description, --quota, --outlast or --limit")
			}
			return nil
		},
		ValidArgsFunction: completeTags(&f.conn),
	}
	fields.register(cmd)
	return f.tagCommand(cmd, "", func(ctx context.Context, c *admin.Client, tag string) (admin.TagChange, error) {
		u := fields.given(cmd)
		u.Tag, u.Force = tag, fields.force
		return c.UpdateTag(ctx, u)
	})
}

func newTagPauseCmd() *cobra.Command {
	return newTagSwitchCmd("pause", "paused", true, `Pause a tag: requests for it are refused with the reason paused, and nothing is
reserved of it, until "leaf tag resume". When the command returns, that is in
force at every generator that is heard. A warning names those that are not.`)
}

func newTagResumeCmd() *cobra.Command {
	return newTagSwitchCmd("resume", "resumed", false, `Let a paused tag go on. It changes nothing if the tag is not paused.`)
}

func newTagSwitchCmd(verb, done string, paused bool, long string) *cobra.Command {
	var f clientFlags
	return f.tagCommand(&cobra.Command{
		Use:               verb + " TAG",
		Short:             strings.ToUpper(verb[:1]) + verb[1:] + " a tag",
		Long:              long,
		Example:           "  leaf tag " + verb + " order",
		ValidArgsFunction: completeTags(&f.conn),
	}, done+" %s; it is at %d\n", func(ctx context.Context, c *admin.Client, tag string) (admin.TagChange, error) {
		return c.UpdateTag(ctx, admin.TagUpdate{Tag: tag, RulesChange: allocator.RulesChange{Paused: &paused}})
	})
}

func newTagRmCmd() *cobra.Command {
	var f clientFlags
	var yes bool
	cmd := &cobra.Command{
		Use:     "rm TAG",
		Aliases: []string{"delete", "remove"},
		Short:   "Delete a tag",
		Long: `Delete a tag: requests for it are refused from now on. If you
create a tag of that name again, it continues above the IDs of the deleted one.

On a terminal, type the tag's name to confirm. Without a terminal, give --yes.`,
		Example: `  leaf tag rm order
  leaf tag rm order --yes`,
		ValidArgsFunction: completeTags(&f.conn),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return f.tagCommand(cmd, "deleted %s; its max_id was %d\n", func(ctx context.Context, c *admin.Client, tag string) (admin.TagChange, error) {
		if !yes {
			if err := confirmRm(cmd, c, tag); err != nil {
				return admin.TagChange{}, err
			}
		}
		return c.DeleteTag(ctx, tag)
	})
}

// confirmRm shows a tag, and asks for its name.
func confirmRm(cmd *cobra.Command, c *admin.Client, tag string) error {
	t, err := c.Tag(cmd.Context(), tag)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "After the deletion, requests for %s are refused. Its max_id is %d, and its description is %q.\n", t.Tag, t.MaxID, t.Description)
	return confirm(cmd, fmt.Sprintf("Type the name of the tag to delete, %s: ", t.Tag), t.Tag)
}
