package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
)

func newNodesCmd() *cobra.Command {
	var a admin
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "Show the generators that are running, and their state",
		Example: `  leaf nodes
  leaf nodes --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd, func(ctx context.Context, c *bus.Client) error {
				states, err := c.States(ctx)
				switch {
				case err != nil:
					return err
				case len(states) == 0:
					return errors.New("no generator answers: is one running on this NATS?")
				case a.json:
					return printJSON(cmd.OutOrStdout(), map[string][]bus.State{"nodes": states})
				}
				return printNodes(cmd, states)
			})
		},
	}
	a.register(cmd)
	return cmd
}

func printNodes(cmd *cobra.Command, states []bus.State) error {
	rows := make([][]string, len(states))
	for i, s := range states {
		ready := "ready"
		if !s.Ready {
			ready = "missing: " + strings.Join(s.Missing, ", ")
		}
		var refused int64
		for _, n := range s.Counts.Errors {
			refused += n
		}
		rows[i] = []string{
			s.Node, ready, fmt.Sprint(s.Counts.Requests), fmt.Sprint(s.Counts.IDs), fmt.Sprint(refused),
			fmt.Sprint(s.Counts.Waiting), strconv.Itoa(s.Counts.Tags), s.Address, s.Version,
		}
	}
	return printTable(cmd.OutOrStdout(),
		[]string{"NODE", "STATE", "REQUESTS", "IDS", "REFUSED", "WAITING", "TAGS", "NATS", "VERSION"}, rows)
}
