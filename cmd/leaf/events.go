package main

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
)

// eventsFlags say which events to follow, and how.
type eventsFlags struct {
	clientFlags
	alerts  bool
	since   time.Duration
	durable string
	live    bool
}

func newEventsCmd() *cobra.Command {
	var f eventsFlags
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Follow what happens",
		Long: `Follow the events of all generators, from now on or, with --since, from some time
ago (the stream keeps them for 30 days). It goes on until it is interrupted.

With --durable NAME the server notes how far this has come: the next run with that
name goes on there. An event that it was killed at comes again, 30 s later. Several
that run with one name share the events. --since counts for the first run alone; to
start over, delete the name: nats consumer rm LEAF_EVENTS NAME.

Each event is one line: time, severity, type, tag or worker or node, and the other fields
of its body without the configuration of a generator. On a terminal alerts are red and
ends of alerts green, unless NO_COLOR is set. With --json a line has the whole event.

With --live events are shown as they are published, and events during a lost connection
are missed. The same holds where NATS has no JetStream to store them, unless --since or
--durable requires that.`,
		Example: `  leaf events
  leaf events --alerts
  leaf events --since 1h --json
  leaf events --alerts --json --durable pager    every alert, also those of when it did not run
  leaf events --live`,
		PreRunE: func(*cobra.Command, []string) error {
			if f.since < 0 {
				return usagef("--since is below zero")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&f.alerts, "alerts", false, "only events that need an operator")
	cmd.Flags().DurationVar(&f.since, "since", 0, "start with what happened this long ago")
	cmd.Flags().StringVar(&f.durable, "durable", "", "go on where the last one with this `NAME` was")
	cmd.Flags().BoolVar(&f.live, "live", false, "follow the events as they are published, without JetStream")
	exclusive(cmd, "since", "live")
	exclusive(cmd, "durable", "live")
	return f.command(cmd, f.run)
}

func (f *eventsFlags) run(cmd *cobra.Command, c *bus.Client, _ []string) error {
	ctx := cmd.Context()
	var opts []bus.EventOption
	if f.alerts {
		opts = append(opts, bus.AlertsOnly())
	}
	if f.since > 0 {
		opts = append(opts, bus.Since(time.Now().Add(-f.since)))
	}
	if cmd.Flags().Changed("durable") {
		opts = append(opts, bus.Durable(f.durable))
	}
	if f.live {
		opts = append(opts, bus.Live())
	}
	err := f.follow(cmd, c.Events(ctx, opts...))
	wantsKept := f.since > 0 || cmd.Flags().Changed("durable") || f.conn.jsDomain != ""
	if errors.Is(err, bus.ErrNoJetStream) && !wantsKept {
		fmt.Fprintln(cmd.ErrOrStderr(), "leaf: this NATS has no JetStream, so nothing keeps events: following them live")
		err = f.follow(cmd, c.Events(ctx, append(opts, bus.Live())...))
	}
	if errors.Is(err, jetstream.ErrInvalidConsumerName) {
		return usagef("--durable: %w", err)
	}
	return err
}

// follow prints the events until they end.
func (f *eventsFlags) follow(cmd *cobra.Command, events iter.Seq2[bus.Event, error]) error {
	for e, err := range events {
		switch {
		case errors.Is(err, bus.ErrNotAnEvent):
			fmt.Fprintf(cmd.ErrOrStderr(), "leaf: %v\n", err)
		case err != nil:
			return err
		default:
			if err := f.print(cmd, e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *eventsFlags) print(cmd *cobra.Command, e bus.Event) error {
	if f.json {
		return printJSON(cmd.OutOrStdout(), e)
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), eventLine(e, colourful(cmd.OutOrStdout())))
	return err
}
