package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/cli"
)

func newNodesCmd() *cobra.Command {
	var f cli.Client
	cmd := f.Command(&cobra.Command{
		Use:   "nodes",
		Short: "Show the generators that are running or lost, and their state",
		Long: `Show the generators that are running or lost, and their state.

A generator is lost if the others do not hear it, and it did not report that it stops.
It is shown until it returns, or until its reservation is over.`,
		Example: `  leaf nodes
  leaf nodes --json`,
	}, showNodes)
	cmd.AddCommand(newNodesForgetCmd())
	return cmd
}

func newNodesForgetCmd() *cobra.Command {
	var f cli.Client
	return f.Command(&cobra.Command{
		Use:   "forget NODE",
		Short: "Forget a lost generator that is gone for good",
		Long: `Forget a lost generator that is gone for good: its alert ends, and changes of tags no
longer warn that it was not heard. It is known again as soon as it is heard. Its worker
stays reserved: see "leaf workers release".`,
		Example: `  leaf nodes forget db1.example.com`,
	}, func(s *cli.Session, args []string) error {
		if err := s.Admin.ForgetNode(s.Context(), args[0]); err != nil {
			return err
		}
		return s.Print(admin.NodeName{Node: args[0]}, func(w io.Writer) { fmt.Fprintln(w, "forgot", cli.Safe(args[0])) })
	})
}

func showNodes(s *cli.Session, _ []string) error {
	states, err := s.Admin.States(s.Context())
	switch {
	case err != nil:
		return err
	case len(states) == 0:
		return cli.Nobody{Err: errors.New("no generator answers: is one running on this NATS?")}
	case s.JSON:
		lost := append([]admin.LostNode{}, admin.LostNodes(states)...) // [] if there are none
		return cli.PrintJSON(s.Out, map[string]any{"nodes": states, "lost": lost})
	}
	rows := []cli.Row{{"NODE", "STATE", "WORKER", "REQUESTS", "IDS", "REFUSED", "WAITING", "TAGS", "HTTP", "NATS",
		"VERSION"}}
	for _, n := range states {
		ready := "ready"
		if !n.Ready {
			ready = "missing: " + strings.Join(n.Missing, ", ")
		}
		for _, what := range n.Missing {
			fmt.Fprintln(s.Cmd.ErrOrStderr(), cli.Safe(fmt.Sprintf("%s: %s: %s", n.Node, what, n.Reasons[what])))
		}
		var worker any = ""
		if n.Worker != nil {
			worker = *n.Worker
		}
		var refused int64
		for _, count := range n.Counts.Errors {
			refused += count
		}
		rows = append(rows, cli.Row{n.Node, ready, worker, n.Counts.Requests, n.Counts.IDs, refused, n.Counts.Waiting,
			n.Counts.Tags, n.HTTP, n.Address, n.Version})
	}
	for _, l := range admin.LostNodes(states) {
		ago := (time.Duration(l.SilentMS) * time.Millisecond).Truncate(time.Second)
		rows = append(rows, cli.Row{l.Node, fmt.Sprintf("lost, last heard %v ago", ago)})
	}
	cli.PrintTable(s.Out, rows...)
	return nil
}
