package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/cli"
)

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
		if n := len(all.Unserved); n > 0 {
			fmt.Fprintf(s.Cmd.ErrOrStderr(), "leaf: tags that are not served are left out: %d (`leaf tag list` "+
				"shows why)\n", n)
		}
		return s.Print(map[string]any{"tags": all.Tags}, func(w io.Writer) error { return writeTagFile(w, all.Tags) })
	})
	cmd.Flags().StringVar(&req.Prefix, "prefix", "", "only tags that start with `TEXT`")
	return cmd
}
