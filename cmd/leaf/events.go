package main

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus/events"
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
		Long: `Print the events of all generators as they come, until Ctrl-C. With --since, begin
with earlier events (the stream keeps them for 30 days). --alerts leaves out all events
of severity info, also the ends of alerts.

With --durable NAME, the next run with that NAME continues where this run ends. If the
process is killed, the event that it was printing comes again after 30 s. Several
processes with one NAME share the events. Only the first run uses --since. To start over,
delete the name: nats consumer rm LEAF_EVENTS NAME.

Each event is one line: time, severity, type, then the tag, worker or node, then the other
fields of its body. The configuration of a generator is left out. On a terminal alerts are
red and ends of alerts green, unless NO_COLOR is set. With --json a line has the whole event.

With --live it needs no JetStream, and misses events while the connection is lost. It does
the same if NATS has no JetStream. Then --since and --durable fail.`,
		Example: `  leaf events
  leaf events --alerts
  leaf events --since 1h --json
  leaf events --alerts --json --durable pager    every alert, also from the time between two runs
  leaf events --live`,
		PreRunE: func(*cobra.Command, []string) error {
			if f.since < 0 {
				return usagef("--since is below zero")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&f.alerts, "alerts", false, "only alerts, without their ends")
	cmd.Flags().DurationVar(&f.since, "since", 0, "begin with the events since this long ago")
	cmd.Flags().StringVar(&f.durable, "durable", "", "continue where the last run with this `NAME` ended")
	cmd.Flags().BoolVar(&f.live, "live", false, "follow the events as they are published, without JetStream")
	exclusive(cmd, "since", "live")
	exclusive(cmd, "durable", "live")
	return f.complete(cmd, func(cmd *cobra.Command, _ []string) error {
		return f.conn.withConn(cmd, func(nc *nats.Conn, js jetstream.JetStream) error { return f.run(cmd, nc, js) })
	})
}

func (f *eventsFlags) run(cmd *cobra.Command, nc *nats.Conn, js jetstream.JetStream) error {
	ctx := cmd.Context()
	opts := []events.Option{events.JetStream(js), events.Timeout(f.conn.timeout)}
	if f.alerts {
		opts = append(opts, events.AlertsOnly())
	}
	if f.since > 0 {
		opts = append(opts, events.Since(time.Now().Add(-f.since)))
	}
	if cmd.Flags().Changed("durable") {
		opts = append(opts, events.Durable(f.durable))
	}
	if f.live {
		opts = append(opts, events.Live())
	}
	err := f.follow(cmd, events.Follow(ctx, nc, opts...))
	wantsKept := f.since > 0 || cmd.Flags().Changed("durable") || f.conn.jsDomain != ""
	if errors.Is(err, events.ErrNoJetStream) && !wantsKept {
		fmt.Fprintln(cmd.ErrOrStderr(), "leaf: this NATS has no JetStream, so nothing keeps events: following them live")
		err = f.follow(cmd, events.Follow(ctx, nc, append(opts, events.Live())...))
	}
	if errors.Is(err, jetstream.ErrInvalidConsumerName) {
		return usagef("--durable: %w", err)
	}
	return err
}

// follow prints the events until they end.
func (f *eventsFlags) follow(cmd *cobra.Command, all iter.Seq2[events.Event, error]) error {
	for e, err := range all {
		switch {
		case errors.Is(err, events.ErrNotAnEvent):
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

func (f *eventsFlags) print(cmd *cobra.Command, e events.Event) error {
	if f.json {
		return printJSON(cmd.OutOrStdout(), e)
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), eventLine(e, colourful(cmd.OutOrStdout())))
	return err
}
