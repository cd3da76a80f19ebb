package main

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/idspace"
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
		return s.Print(all, func(w io.Writer) {
			for _, t := range all.Unserved {
				t.Description = "NOT SERVED: " + t.Problem
				all.Tags = append(all.Tags, t.TagRecord)
			}
			printTags(w, all.Tags...)
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
		if s.JSON {
			return cli.PrintJSON(s.Out, map[string]any{"tags": all.Tags})
		}
		return writeTagFile(s.Out, all.Tags)
	})
	cmd.Flags().StringVar(&req.Prefix, "prefix", "", "only tags that start with `TEXT`")
	return cmd
}

// tagCommand completes cmd, which asks about the tag in its argument, or changes it. It prints the
// record, or what done makes of its name and max_id.
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

// printTags writes a table.
func printTags(w io.Writer, tags ...admin.TagRecord) {
	rows := []cli.Row{{"TAG", "MAX_ID", "STEP", "OPAQUE", "UPDATED", "RULES", "DESCRIPTION"}}
	for _, t := range tags {
		rows = append(rows, cli.Row{t.Tag, t.MaxID, cmp.Or(t.Order, fmt.Sprint(t.Step)), t.Opaque, t.Updated,
			rulesOf(t.TagRules), t.Description})
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
