package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/cli"
)

// tagCommand completes cmd, which asks about the tag in its argument, or changes it. It prints the record, or what done
// makes of its name and max_id.
func tagCommand(
	f *cli.Client, cmd *cobra.Command, done string, ask func(*cli.Session, string) (admin.TagRecord, error),
) *cobra.Command {
	return f.Command(cmd, func(s *cli.Session, args []string) error {
		t, err := ask(s, args[0])
		if err != nil {
			return err
		}
		warnUnheard(s, t.Unheard)
		return s.Print(t, func(w io.Writer) {
			if done == "" {
				printTags(w, t)
			} else {
				fmt.Fprintf(w, done, t.Tag, t.MaxID)
			}
		})
	})
}

// allTags returns all pages of the tags as one.
func allTags(ctx context.Context, c *admin.Client, req admin.PageRequest) (admin.TagsPage, error) {
	all := admin.TagsPage{Tags: []admin.TagRecord{}}
	for more := true; more; more = req.After != "" {
		page, err := c.Tags(ctx, req)
		if err != nil {
			return all, err
		}
		all.Tags, all.Unserved = append(all.Tags, page.Tags...), append(all.Unserved, page.Unserved...)
		req.After = page.Next
	}
	return all, nil
}

// warnUnserved warns of tags that a command for all leaves out.
func warnUnserved(s *cli.Session, all admin.TagsPage) {
	if n := len(all.Unserved); n > 0 {
		s.Warnf("tags that are not served are left out: %d (`leaf tag list` shows why)", n)
	}
}

// warnUnheard warns of generators that may not know of a change.
func warnUnheard(s *cli.Session, nodes []string) {
	if slices.Sort(nodes); len(nodes) > 0 {
		s.Warnf("these generators fell silent in the last hour: %s. One that still runs may hand out IDs as before "+
			"this change until it reaches NATS again: stop it. Ignore those that were killed",
			strings.Join(slices.Compact(nodes), ", "))
	}
}

// printTags writes a table.
func printTags(w io.Writer, tags ...admin.TagRecord) {
	rows := [][]string{{"TAG", "MAX_ID", "STEP", "OPAQUE", "UPDATED", "RULES", "DESCRIPTION"}}
	for _, t := range tags {
		rows = append(rows, []string{t.Tag, strconv.FormatInt(int64(t.MaxID), 10),
			cmp.Or(t.Order, strconv.FormatInt(t.Step, 10)), t.Opaque, cli.Time(t.Updated), rulesOf(t.TagRules), t.Description})
	}
	cli.PrintTable(w, rows...)
}

// rulesOf is what a list shows as the rules of a tag.
func rulesOf(r admin.TagRules) string {
	var parts []string
	if r.Paused {
		parts = append(parts, "paused")
	}
	if r.Quota.PerSecond > 0 {
		parts = append(parts, "quota "+shown(r.Quota))
	}
	if r.Outlast > 0 {
		parts = append(parts, fmt.Sprintf("outlast %v", r.Outlast))
	}
	if r.Limit > 0 {
		parts = append(parts, fmt.Sprintf("limit %d", r.Limit))
	}
	return strings.Join(parts, ", ")
}

// shown is the value of a field in a line for people.
func shown(v any) string {
	if q, ok := v.(idspace.Quota); ok && q.PerSecond > 0 {
		return fmt.Sprintf("%d/s burst %d", q.PerSecond, q.Burst)
	}
	if reflect.ValueOf(v).IsZero() && v != false {
		return "none"
	}
	return fmt.Sprint(v)
}
