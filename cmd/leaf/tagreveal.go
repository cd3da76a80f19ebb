package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
)

// revealed is an ID and its number, as leaf tag reveal prints them with --json.
type revealed struct {
	ID     bus.ID `json:"id"`
	Number bus.ID `json:"number"`
}

func newTagRevealCmd() *cobra.Command {
	var f clientFlags
	cmd := &cobra.Command{
		Use:   "reveal TAG ID...",
		Short: "Show the numbers of IDs of an opaque tag",
		Long: `Show the numbers of IDs of an opaque tag, in the order of the IDs. An ID with the
number 4711 is the 4711th of the tag, unless there were gaps.

Each number of the domain has an ID. "leaf trace TAG ID" says whether a generator
has claimed it. A NATS user needs leaf.admin.> for this: docs/security.md.`,
		Example: `  leaf tag reveal gift 5813291046623847
  leaf tag reveal gift 5813291046623847 917264000351 --json`,
		ValidArgsFunction: completeTags(&f.conn),
	}
	return f.command(cmd, func(cmd *cobra.Command, c *admin.Client, args []string) error {
		var ids []bus.ID
		for _, text := range args[1:] {
			id, err := parseID(text)
			if err != nil {
				return usagef("%v", err)
			}
			ids = append(ids, id)
		}
		numbers, err := c.RevealIDs(cmd.Context(), args[0], ids...)
		if err != nil {
			return err
		}
		if !f.json {
			rows := make([][]string, len(ids))
			for i, id := range ids {
				rows[i] = []string{strconv.FormatInt(int64(id), 10), strconv.FormatInt(int64(numbers[i]), 10)}
			}
			return printTable(cmd.OutOrStdout(), []string{"ID", "NUMBER"}, rows)
		}
		list := make([]revealed, len(ids))
		for i, id := range ids {
			list[i] = revealed{id, numbers[i]}
		}
		return printJSON(cmd.OutOrStdout(), struct {
			Tag string     `json:"tag"`
			IDs []revealed `json:"ids"`
		}{args[0], list})
	})
}
