package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/cli"
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
	cmd.AddCommand(newTagAddCmd(), newTagListCmd(), newTagShowCmd(), newTagSetCmd(),
		newTagSwitchCmd("pause", "paused", true, "Pause a tag: requests for it are refused with the reason paused, "+
			"until \"leaf tag resume\"."),
		newTagSwitchCmd("resume", "resumed", false, "Let a paused tag go on. It changes nothing if the tag is not "+
			"paused."),
		newTagAdvanceCmd(), newTagRevealCmd(), newTagRmCmd(), newTagApplyCmd(), newTagExportCmd())
	return cmd
}

func newTagShowCmd() *cobra.Command {
	var f cli.Client
	return tagCommand(&f, &cobra.Command{
		Use:     "show TAG",
		Aliases: []string{"info"},
		Short:   "Show a tag",
		Example: `  leaf tag show order
  leaf tag show order --json`,
	}, "", func(s *cli.Session, tag string) (admin.TagRecord, error) { return s.Admin.Tag(s.Context(), tag) })
}

func newTagSwitchCmd(verb, done string, paused bool, long string) *cobra.Command {
	var f cli.Client
	return tagCommand(&f, &cobra.Command{
		Use:     verb + " TAG",
		Short:   strings.ToUpper(verb[:1]) + verb[1:] + " a tag",
		Long:    long,
		Example: "  leaf tag " + verb + " order",
	}, done+" %s; it is at %d\n", func(s *cli.Session, tag string) (admin.TagRecord, error) {
		change := idspace.RulesChange{Paused: &paused}
		return s.Admin.UpdateTag(s.Context(), admin.TagSpec{Tag: tag, RulesChange: change})
	})
}

func newTagRmCmd() *cobra.Command {
	var f cli.Client
	var yes bool
	cmd := tagCommand(&f, &cobra.Command{
		Use:     "rm TAG",
		Aliases: []string{"delete", "remove"},
		Short:   "Delete a tag",
		Long: `Delete a tag: requests for it are refused from now on. If you create a tag of that
name again, it continues above the IDs of the deleted one.`,
		Example: `  leaf tag rm order          what would be deleted
  leaf tag rm order --yes`,
	}, "deleted %s; its max_id was %d\n", func(s *cli.Session, tag string) (t admin.TagRecord, err error) {
		if !yes {
			if t, err = s.Admin.Tag(s.Context(), tag); err != nil {
				return t, err
			}
			return t, cli.Usagef("after the deletion, requests for %s are refused; its max_id is %d: confirm with --yes", t.Tag,
				t.MaxID)
		}
		return s.Admin.DeleteTag(s.Context(), tag)
	})
	cmd.Flags().BoolVar(&yes, "yes", false, "delete it")
	return cmd
}

// revealed is an ID and its number, as leaf tag reveal prints them with --json.
type revealed struct {
	ID     bus.ID `json:"id"`
	Number bus.ID `json:"number"`
}

func newTagRevealCmd() *cobra.Command {
	var f cli.Client
	var ids []bus.ID
	return f.Command(&cobra.Command{
		Use:   "reveal TAG ID...",
		Short: "Show the numbers of IDs of an opaque tag",
		Long: `Show the numbers of IDs of an opaque tag: the ID with the number 4711 is the 4711th of
the tag, unless there were gaps. "leaf trace TAG ID" says whether it was claimed.`,
		Example: `  leaf tag reveal gift 5813291046623847
  leaf tag reveal gift 5813291046623847 917264000351 --json`,
		PreRunE: func(_ *cobra.Command, args []string) error {
			for _, text := range args[1:] {
				id, err := parseID(text)
				if err != nil {
					return err
				}
				ids = append(ids, id)
			}
			return nil
		},
	}, func(s *cli.Session, args []string) error {
		numbers, err := s.Admin.RevealIDs(s.Context(), args[0], ids...)
		if err != nil {
			return err
		}
		report := struct {
			Tag string     `json:"tag"`
			IDs []revealed `json:"ids"`
		}{Tag: args[0]}
		rows := []cli.Row{{"ID", "NUMBER"}}
		for i, id := range ids {
			report.IDs = append(report.IDs, revealed{id, numbers[i]})
			rows = append(rows, cli.Row{id, numbers[i]})
		}
		return s.Print(report, func(w io.Writer) { cli.PrintTable(w, rows...) })
	})
}
