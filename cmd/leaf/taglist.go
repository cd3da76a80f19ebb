package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/cli"
)

func newTagListCmd() *cobra.Command {
	var f cli.Client
	var req admin.PageRequest
	cmd := f.Command(&cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the tags and how far they are",
		Long: `List the tags and how far they are, sorted by name. OPAQUE is the domain of an opaque
tag, whose MAX_ID is a number and no ID.`,
		Example: `  leaf tag list
  leaf tag list --prefix shop. --json
  leaf tag list --contains refund`,
	}, func(s *cli.Session, _ []string) error {
		all, err := allTags(s.Context(), s.Admin, req)
		if err != nil {
			return err
		}
		return s.Print(all, func(w io.Writer) error {
			for _, t := range all.Unserved {
				t.Description = "NOT SERVED: " + t.Problem
				all.Tags = append(all.Tags, t.TagRecord)
			}
			return printTags(w, all.Tags...)
		})
	})
	cmd.Flags().StringVar(&req.Prefix, "prefix", "", "only tags that start with `TEXT`")
	cmd.Flags().StringVar(&req.Contains, "contains", "", "only tags with `TEXT` anywhere in the name")
	return cmd
}

func newTagExportCmd() *cobra.Command {
	var f cli.Client
	var req admin.PageRequest
	cmd := f.Command(&cobra.Command{
		Use:   "export",
		Short: "Write the tags as a file for leaf tag apply",
		Long: `Write the tags as YAML, or with --json as JSON, for leaf tag apply. It is no backup: IDs
that are handed out after the export are above its max_id.`,
		Example: `  leaf tag export > tags.yaml
  leaf tag export --prefix shop. > shop.yaml`,
	}, func(s *cli.Session, _ []string) error {
		all, err := allTags(s.Context(), s.Admin, req)
		if err != nil {
			return err
		}
		warnUnserved(s, all)
		return s.Print(map[string]any{"tags": all.Tags}, func(w io.Writer) error { return writeTagFile(w, all.Tags) })
	})
	cmd.Flags().StringVar(&req.Prefix, "prefix", "", "only tags that start with `TEXT`")
	return cmd
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

// printTags writes a table. Columns that would be empty are left out.
func printTags(w io.Writer, tags ...admin.TagRecord) error {
	head := []string{"TAG", "MAX_ID", "STEP", "OPAQUE", "UPDATED", "RULES", "DESCRIPTION"}
	rows := make([][]string, len(tags))
	for i, t := range tags {
		rows[i] = []string{t.Tag, strconv.FormatInt(int64(t.MaxID), 10),
			cmp.Or(t.Order, strconv.FormatInt(t.Step, 10)), t.Opaque, cli.Time(t.Updated), rulesOf(t.TagRules), t.Description}
	}
	for _, column := range []int{5, 3} { // the last one first, because they are cut out
		if slices.ContainsFunc(rows, func(row []string) bool { return row[column] != "" }) {
			continue
		}
		head = slices.Delete(head, column, column+1)
		for i := range rows {
			rows[i] = slices.Delete(rows[i], column, column+1)
		}
	}
	return cli.PrintTable(w, head, rows)
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
