package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
)

func newTagCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tag",
		Short: "Create, list and change tags",
		Long: `Create, list and change tags. A tag is a sequence of IDs of its own, say one for
each kind of thing that is numbered.`,
		Example: `  leaf tag add order --step 1000 --description 'orders of the shop'
  leaf tag list
  leaf tag set order --max-id 5000000`,
	}
	cmd.AddCommand(newTagAddCmd(), newTagListCmd(), newTagShowCmd(), newTagSetCmd(), newTagRmCmd())
	return cmd
}

// admin is what the commands that ask one question have in common.
type admin struct {
	conn connFlags
	json bool
}

func (a *admin) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.json, "json", false, "write JSON")
	a.conn.register(cmd.Flags())
	a.conn.registerContext(cmd.Flags())
}

// ask connects, and calls f within the timeout.
func (a *admin) ask(cmd *cobra.Command, f func(context.Context, *bus.Client) error) error {
	return a.connected(cmd, func(ctx context.Context, nc *nats.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, a.conn.timeout)
		defer cancel()
		return f(ctx, bus.NewClient(nc))
	})
}

func (a *admin) connected(cmd *cobra.Command, f func(context.Context, *nats.Conn) error) error {
	nc, err := a.conn.connectClient(cmd)
	if err != nil {
		return err
	}
	defer nc.Close()
	return f(cmd.Context(), nc)
}

// show prints tags.
func (a *admin) show(cmd *cobra.Command, tags ...bus.TagRecord) error {
	rows := make([][]string, len(tags))
	for i, t := range tags {
		rows[i] = []string{t.Tag, strconv.FormatInt(int64(t.MaxID), 10), strconv.FormatInt(t.Step, 10),
			local(t.Updated), t.Description}
	}
	return printTable(cmd.OutOrStdout(), []string{"TAG", "MAX_ID", "STEP", "UPDATED", "DESCRIPTION"}, rows)
}

// changed warns of the generators that were not heard, and prints a changed tag.
func (a *admin) changed(cmd *cobra.Command, t bus.TagChange) error {
	warnUnheard(cmd, t)
	if a.json {
		return printJSON(cmd.OutOrStdout(), t)
	}
	return a.show(cmd, t.TagRecord)
}

func warnUnheard(cmd *cobra.Command, t bus.TagChange) {
	if len(t.Unheard) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: these generators fell silent in the last hour: %s. "+
			"One that still runs may hand out IDs as before this change until it reaches NATS again: stop it. Ignore those that were killed\n",
			strings.Join(t.Unheard, ", "))
	}
}

// one prints the answer that is one tag.
func (a *admin) one(cmd *cobra.Command, t bus.TagRecord) error {
	if a.json {
		return printJSON(cmd.OutOrStdout(), t)
	}
	return a.show(cmd, t)
}

// named returns a command that asks one question about the tag it is given.
func named[Resp any](a *admin, ask func(*bus.Client, context.Context, string) (Resp, error),
	show func(*cobra.Command, Resp) error) *cobra.Command {
	cmd := &cobra.Command{
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ask(cmd, func(ctx context.Context, c *bus.Client) error {
				t, err := ask(c, ctx, args[0])
				if err != nil {
					return err
				}
				return show(cmd, t)
			})
		},
	}
	a.register(cmd)
	cmd.ValidArgsFunction = completeTags(&a.conn)
	return cmd
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
func (f *tagFields) check(cmd *cobra.Command) error {
	if cmd.Flags().Changed("max-id") && f.maxID < 1 {
		return usagef("--max-id is %d, not at least 1", f.maxID)
	}
	return nil
}

// given returns the fields that were given, nil for the others.
func (f *tagFields) given(cmd *cobra.Command) (step *int64, maxID *bus.ID, description *string) {
	if cmd.Flags().Changed("step") {
		step = &f.step
	}
	if cmd.Flags().Changed("max-id") {
		maxID = (*bus.ID)(&f.maxID)
	}
	if cmd.Flags().Changed("description") {
		description = &f.description
	}
	return step, maxID, description
}

func newTagAddCmd() *cobra.Command {
	var a admin
	var f tagFields
	cmd := &cobra.Command{
		Use:     "add TAG",
		Aliases: []string{"create"},
		Short:   "Create a tag",
		Long: `Create a tag. It starts at --max-id (default 1) with --step (default 1000). A tag
that was deleted before continues above all IDs that it ever had.`,
		Example: `  leaf tag add order
  leaf tag add legacy.users --max-id 7000001 --step 100`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			return a.ask(cmd, func(ctx context.Context, c *bus.Client) error {
				req := bus.TagCreate{Tag: args[0], Description: f.description}
				req.Step, req.MaxID, _ = f.given(cmd)
				t, err := c.CreateTag(ctx, req)
				if err != nil {
					return err
				}
				return a.changed(cmd, t)
			})
		},
	}
	a.register(cmd)
	f.register(cmd)
	return cmd
}

func newTagListCmd() *cobra.Command {
	var a admin
	var req bus.PageRequest
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the tags and how far they are",
		Example: `  leaf tag list
  leaf tag list --prefix shop. --json
  leaf tag list --contains refund`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.connected(cmd, func(ctx context.Context, nc *nats.Conn) error {
				all := bus.TagsPage{Tags: []bus.TagRecord{}}
				for {
					ctx, cancel := context.WithTimeout(ctx, a.conn.timeout)
					page, err := bus.NewClient(nc).Tags(ctx, req)
					cancel()
					if err != nil {
						return err
					}
					all.Tags = append(all.Tags, page.Tags...)
					all.Unserved = append(all.Unserved, page.Unserved...)
					if req.After = page.Next; page.Next == "" {
						break
					}
				}
				if a.json {
					return printJSON(cmd.OutOrStdout(), all)
				}
				for _, t := range all.Unserved {
					t.Description = "NOT SERVED: " + t.Problem
					all.Tags = append(all.Tags, t.TagRecord)
				}
				return a.show(cmd, all.Tags...)
			})
		},
	}
	cmd.Flags().StringVar(&req.Prefix, "prefix", "", "only tags that start with `TEXT`")
	cmd.Flags().StringVar(&req.Contains, "contains", "", "only tags that have `TEXT` anywhere in them; letters' case counts")
	a.register(cmd)
	return cmd
}

func newTagShowCmd() *cobra.Command {
	var a admin
	cmd := named(&a, (*bus.Client).Tag, a.one)
	cmd.Use, cmd.Aliases = "show TAG", []string{"info"}
	cmd.Short = "Show a tag"
	cmd.Example = `  leaf tag show order
  leaf tag show order --json`
	return cmd
}

func newTagSetCmd() *cobra.Command {
	var a admin
	var f tagFields
	cmd := &cobra.Command{
		Use:     "set TAG",
		Aliases: []string{"edit"},
		Short:   "Change a tag",
		Long: `Change a tag. A new --max-id is in force when the command returns: every
generator that is heard has dropped its IDs below. A warning names the generators
that are not heard. A max-id only moves forward.`,
		Example: `  leaf tag set order --max-id 5000000
  leaf tag set order --step 20000 --description 'orders of all shops'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			step, maxID, description := f.given(cmd)
			if step == nil && maxID == nil && description == nil {
				return usagef("nothing to change: give --max-id, --step or --description")
			}
			if err := f.check(cmd); err != nil {
				return err
			}
			return a.ask(cmd, func(ctx context.Context, c *bus.Client) error {
				t, err := c.UpdateTag(ctx, bus.TagUpdate{Tag: args[0], MaxID: maxID, Step: step, Description: description})
				if err != nil {
					return err
				}
				return a.changed(cmd, t)
			})
		},
	}
	a.register(cmd)
	f.register(cmd)
	cmd.ValidArgsFunction = completeTags(&a.conn)
	return cmd
}

func newTagRmCmd() *cobra.Command {
	var a admin
	cmd := named(&a, (*bus.Client).DeleteTag, func(cmd *cobra.Command, t bus.TagChange) error {
		if a.json {
			return a.changed(cmd, t)
		}
		warnUnheard(cmd, t)
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "deleted %s; it was at %d\n", t.Tag, t.MaxID)
		return err
	})
	cmd.Use, cmd.Aliases, cmd.Short = "rm TAG", []string{"delete", "remove"}, "Delete a tag"
	cmd.Long = `Delete a tag: requests for it are refused from now on. How far it was is kept, so
that a tag of that name, created later, continues above.`
	cmd.Example = `  leaf tag rm order`
	return cmd
}
