package main

import (
	"io"

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
