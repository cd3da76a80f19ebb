package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/cli"
)

func newTagRmCmd() *cobra.Command {
	var f cli.Client
	var yes bool
	cmd := tagCommand(&f, &cobra.Command{
		Use:     "rm TAG",
		Aliases: []string{"delete", "remove"},
		Short:   "Delete a tag",
		Long: `Delete a tag: requests for it are refused from now on. If you create a tag of that
name again, it continues above the IDs of the deleted one.`,
		Example: `  leaf tag rm order
  leaf tag rm order --yes`,
		ValidArgsFunction: f.CompleteTags(1),
	}, "deleted %s; its max_id was %d\n", func(s *cli.Session, tag string) (t admin.TagRecord, err error) {
		if !yes {
			if t, err = s.Admin.Tag(s.Context(), tag); err != nil {
				return t, err
			}
			fmt.Fprintf(s.Cmd.ErrOrStderr(), "After the deletion, requests for %s are refused. Its max_id is %d, "+
				"and its description is %q.\n", t.Tag, t.MaxID, t.Description)
			question := fmt.Sprintf("Type the name of the tag to delete, %s: ", t.Tag)
			if err := cli.Confirm(s.Cmd, question, t.Tag); err != nil {
				return t, err
			}
		}
		return s.Admin.DeleteTag(s.Context(), tag)
	})
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
