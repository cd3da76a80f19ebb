package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
)

func newEventsCmd() *cobra.Command {
	var a admin
	var alerts bool
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Follow what happens",
		Long: `Follow the events of all generators, from now on or, with --since, from some time
ago (the stream keeps them for 30 days). It goes on until it is interrupted.`,
		Example: `  leaf events
  leaf events --alerts
  leaf events --since 1h --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if since < 0 {
				return usagef("--since is below zero")
			}
			return a.connected(cmd, func(ctx context.Context, nc *nats.Conn) error {
				js, err := a.conn.jetStream(nc)
				if err != nil {
					return usagef("--js-domain: %w", err)
				}
				filter := bus.EventFilter{Alerts: alerts}
				if since > 0 {
					filter.Since = time.Now().Add(-since)
				}
				show := func(e bus.Event) error {
					if a.json {
						return printJSON(cmd.OutOrStdout(), e)
					}
					line := fmt.Sprintf("%s %-5s %s %s %s",
						e.Time.Local().Format("2006-01-02 15:04:05.000"), e.Severity, e.Type, e.Key, e.Data)
					_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.Map(printable, line))
					return err
				}
				odd := func(err error) { fmt.Fprintf(cmd.ErrOrStderr(), "leaf: %v\n", err) }
				return bus.FollowEvents(ctx, js, filter, show, odd)
			})
		},
	}
	cmd.Flags().BoolVar(&alerts, "alerts", false, "only what wants an operator")
	cmd.Flags().DurationVar(&since, "since", 0, "start with what happened this long ago")
	a.register(cmd)
	return cmd
}
