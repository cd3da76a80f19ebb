package main

import (
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/cli"
)

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
				var id bus.ID
				if err := id.UnmarshalJSON([]byte(text)); err != nil {
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
		rows := [][]string{{"ID", "NUMBER"}}
		for i, id := range ids {
			report.IDs = append(report.IDs, revealed{id, numbers[i]})
			rows = append(rows, []string{strconv.FormatInt(int64(id), 10), strconv.FormatInt(int64(numbers[i]), 10)})
		}
		return s.Print(report, func(w io.Writer) { cli.PrintTable(w, rows...) })
	})
}
