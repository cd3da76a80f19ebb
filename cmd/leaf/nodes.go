package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus/admin"
)

func newNodesCmd() *cobra.Command {
	var f clientFlags
	return addWaitRedundant(f.command(&cobra.Command{
		Use:     "nodes",
		Short:   "Show the generators that are running or lost, and their state",
		Long:    nodesLong,
		Example: nodesExample,
	}, func(cmd *cobra.Command, c *admin.Client, _ []string) error {
		states, err := c.States(cmd.Context())
		switch {
		case err != nil:
			return err
		case len(states) == 0:
			return nobodyError{errors.New("no generator answers: is one running on this NATS?")}
		case f.json:
			lost := append([]admin.LostNode{}, admin.LostNodes(states)...) // [] if there are none
			return printJSON(cmd.OutOrStdout(), map[string]any{"nodes": states, "lost": lost})
		}
		return printNodes(cmd, states)
	}), &f)
}

func printNodes(cmd *cobra.Command, states []admin.State) error {
	rows := make([][]string, len(states))
	for i, s := range states {
		ready := "ready"
		if !s.Ready {
			ready = "missing: " + strings.Join(s.Missing, ", ")
		}
		for _, what := range s.Missing {
			reason := fmt.Sprintf("%s: %s: %s", s.Node, what, s.Reasons[what])
			fmt.Fprintln(cmd.ErrOrStderr(), strings.Map(printable, reason))
		}
		worker := "-"
		if s.Worker != nil {
			worker = strconv.FormatInt(*s.Worker, 10)
		}
		var refused int64
		for _, n := range s.Counts.Errors {
			refused += n
		}
		rows[i] = []string{
			s.Node, ready, worker, fmt.Sprint(s.Counts.Requests), fmt.Sprint(s.Counts.IDs), fmt.Sprint(refused),
			fmt.Sprint(s.Counts.Waiting), strconv.Itoa(s.Counts.Tags), httpOf(s), s.Address, s.Version,
		}
	}
	for _, l := range admin.LostNodes(states) {
		ago := (time.Duration(l.SilentMS) * time.Millisecond).Truncate(time.Second)
		row := []string{l.Node, fmt.Sprintf("lost, last heard %v ago", ago)}
		rows = append(rows, append(row, slices.Repeat([]string{"-"}, 9)...))
	}
	return printTable(cmd.OutOrStdout(),
		[]string{"NODE", "STATE", "WORKER", "REQUESTS", "IDS", "REFUSED", "WAITING", "TAGS", "HTTP", "NATS", "VERSION"}, rows)
}

// httpOf is where a generator serves HTTP, as Prometheus names it: one that listens on all addresses is known by its
// host.
func httpOf(s admin.State) string {
	host, port, err := net.SplitHostPort(s.HTTP)
	if err != nil {
		return "-"
	}
	if ip := net.ParseIP(host); s.Host != "" && ip != nil && ip.IsUnspecified() {
		host = s.Host
	}
	return net.JoinHostPort(host, port)
}
