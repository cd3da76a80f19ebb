package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/cli"
)

// eventsFlags say which events to follow, and how.
type eventsFlags struct {
	cli.Client
	alerts  bool
	since   time.Duration
	durable string
	live    bool
}

func newEventsCmd() *cobra.Command {
	var f eventsFlags
	cmd := f.Command(&cobra.Command{
		Use:   "events",
		Short: "Follow what happens",
		Long: `Print the events of all generators as they come, one a line, until Ctrl-C.
docs/events.md lists them.`,
		Example: `  leaf events
  leaf events --alerts
  leaf events --since 1h --json
  leaf events --alerts --json --durable pager
  leaf events --live`,
	}, func(s *cli.Session, _ []string) error { return f.run(s) })
	cmd.Flags().BoolVar(&f.alerts, "alerts", false, "only alerts, without their ends")
	cli.Number(cmd.Flags(), &f.since, "since", 0, 0, math.MaxInt64, "begin with the events since this long ago")
	cmd.Flags().StringVar(&f.durable, "durable", "", "continue where the last run with this `NAME` ended")
	cmd.Flags().BoolVar(&f.live, "live", false, "follow the events as they are published, without JetStream")
	cmd.MarkFlagsMutuallyExclusive("since", "live")
	cmd.MarkFlagsMutuallyExclusive("durable", "live")
	return cmd
}

func (f *eventsFlags) run(s *cli.Session) error {
	opts := []events.Option{events.Timeout(f.Timeout)}
	if f.alerts {
		opts = append(opts, events.AlertsOnly())
	}
	if f.since > 0 {
		opts = append(opts, events.Since(time.Now().Add(-f.since)))
	}
	named := s.Cmd.Flags().Changed("durable")
	if named {
		opts = append(opts, events.Durable(f.durable))
	}
	all := events.Follow(s.Context(), s.JS, opts...)
	if f.live {
		all = f.published(s)
	}
	err := show(s, all)
	if errors.Is(err, jetstream.ErrInvalidConsumerName) {
		return cli.Usagef("--durable: %w", err)
	}
	return err
}

// published yields the events as generators publish them. It needs no right on JetStream, which
// could change records.
func (f *eventsFlags) published(s *cli.Session) iter.Seq2[events.Event, error] {
	subject := events.Subjects
	if f.alerts {
		subject = events.AlertSubjects
	}
	return func(yield func(events.Event, error) bool) {
		sub, err := s.NC.SubscribeSync(subject)
		if err == nil {
			err = cmp.Or(s.NC.FlushTimeout(f.Timeout), s.NC.LastError()) // NATS reports a missing permission to the connection
		}
		for err == nil {
			var msg *nats.Msg
			if msg, err = sub.NextMsgWithContext(s.Context()); err == nil &&
				!yield(events.Parse(msg.Subject, msg.Header, msg.Data)) {
				return
			}
		}
		if s.Context().Err() == nil {
			yield(events.Event{}, fmt.Errorf("following the events: %w", err))
		}
	}
}

// show prints the events until they end.
func show(s *cli.Session, all iter.Seq2[events.Event, error]) error {
	for e, err := range all {
		switch {
		case errors.Is(err, events.ErrNotAnEvent):
			s.Warnf("%v", err)
			continue
		case err != nil:
			return err
		case s.JSON:
			err = cli.PrintJSON(s.Out, e)
		default:
			fmt.Fprintln(s.Out, eventLine(e))
		}
		if err = cmp.Or(err, s.Out.Flush()); err != nil {
			return err
		}
	}
	return nil
}

// eventLine is an event as one line for people, with the fields of its body in alphabetical order.
// What the line has already is left out, and the configuration of a generator.
func eventLine(e events.Event) string {
	var body map[string]json.RawMessage
	_ = json.Unmarshal(e.Data, &body) // else there is nothing to show
	var details []string
	for _, name := range slices.Sorted(maps.Keys(body)) {
		if value := string(body[name]); name != "config" && value != strconv.Quote(e.Key) {
			details = append(details, name+"="+value)
		}
	}
	return cli.Safe(strings.TrimRight(fmt.Sprintf("%s  %-5s  %-21s  %-20s  %s", cli.TimeMS(e.Time), e.Severity,
		strings.TrimPrefix(e.Type, "leaf."), e.Key, strings.Join(details, " ")), " "))
}
