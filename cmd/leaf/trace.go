package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/cli"
)

func newTraceCmd() *cobra.Command {
	var f cli.Client
	var tag string // empty: a snowflake
	var id bus.ID
	cmd := &cobra.Command{
		Use:   "trace TAG ID | --snowflake ID",
		Short: "Show which generator claimed an ID",
		Long: `Show which generator claimed an ID of a tag, when, in which range and why. For a
snowflake, show which generator held its worker at its time.

The answer comes from the events and the records that are still there. An ID that
is older than the events is claimed, but the generator is no longer recorded. An ID
that no generator has claimed yet is an answer too. Claimed does not mean that a
caller got the ID. If two generators claimed one ID, the exit status is 1.

An ID of an opaque tag is traced by its number: the range and the end are of numbers.

Of a strict tag only the last claim is recorded: by which generator, and when.
Nothing more is known of the IDs below it.`,
		Example: `  leaf trace order 4711
  leaf trace order 4711 --json
  leaf trace --snowflake 2056789012345678901`,
		Args: func(cmd *cobra.Command, args []string) (err error) {
			tag, id, err = traced(cmd, args)
			return err
		},
		ValidArgsFunction: f.CompleteTags(1),
	}
	cmd.Flags().String("snowflake", "", "trace this snowflake `ID`")
	return f.Command(cmd, func(s *cli.Session, _ []string) error {
		t, err := trace(s.Context(), kvstore.AuditSource(s.Admin, s.JS), tag, id)
		if errors.Is(err, allocator.ErrUnknownTag) {
			return unknownTag(tag)
		}
		if err != nil {
			return s.Failed(err)
		}
		return printTraced(s.Out(), s.JSON, t)
	})
}

// trace traces an ID of a tag, or a snowflake if there is no tag.
func trace(ctx context.Context, from audit.Source, tag string, id bus.ID) (audit.Trace, error) {
	if tag == "" {
		return audit.TraceSnowflake(ctx, from, id)
	}
	return audit.TraceTag(ctx, from, tag, int64(id))
}

// printTraced writes a trace. Two claims of one ID are an error.
func printTraced(w io.Writer, asJSON bool, t audit.Trace) error {
	write := printTrace
	if asJSON {
		write = func(w io.Writer, t audit.Trace) error { return cli.PrintJSON(w, t) }
	}
	err := write(w, t)
	if err == nil && len(t.Claims) > 1 {
		err = fmt.Errorf("ID %d has %d claims, and one is allowed", t.ID, len(t.Claims))
	}
	return err
}

// traced returns the tag and the ID that the command line means. A snowflake has no tag.
func traced(cmd *cobra.Command, args []string) (tag string, id bus.ID, err error) {
	flake := cmd.Flags().Lookup("snowflake")
	switch {
	case flake.Changed && len(args) == 0:
		id, err = parseID(flake.Value.String())
	case !flake.Changed && len(args) == 2:
		tag = args[0]
		id, err = parseID(args[1])
	default:
		err = errors.New("name a tag and an ID, or --snowflake and an ID")
	}
	return tag, id, err
}

func parseID(text string) (bus.ID, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, fmt.Errorf("%q is not an ID: write a whole number from 1 to %d", text, int64(math.MaxInt64))
	}
	return bus.ID(id), nil
}

// printTrace writes what is known of an ID: the message, the claims, and what the answer rests on.
func printTrace(w io.Writer, t audit.Trace) error {
	what := "snowflake"
	if t.Tag != "" {
		what = t.Tag
	}
	if _, err := fmt.Fprintln(w, cli.Safe(fmt.Sprintf("%s %d: %s", what, t.ID, t.Message))); err != nil {
		return err
	}
	var facts [][]string
	fact := func(name, value string) { facts = append(facts, []string{name, value}) }
	for _, c := range t.Claims {
		fact("generator", c.Node)
		if c.First == 0 {
			fact("held since", cli.TimeMS(c.Time))
		} else {
			fact("claimed at", cli.TimeMS(c.Time))
			fact("range", fmt.Sprintf("%d-%d", c.First, c.Last))
		}
		if c.Cause != "" {
			fact("cause", string(c.Cause))
		}
		if c.Record {
			source := "the record; no event has it"
			if t.Order == bus.OrderStrict {
				source = "the record; a strict tag has no events of its claims"
			}
			fact("source", source)
		}
	}
	if d := t.Decoded; d != nil {
		fact("time", cli.TimeMS(time.UnixMilli(d.UnixMS)))
		fact("worker", strconv.FormatInt(d.Worker, 10))
		fact("sequence", strconv.FormatInt(d.Sequence, 10))
	}
	if !t.ReservedUntil.IsZero() {
		fact("worker claimed until", cli.TimeMS(t.ReservedUntil))
	}
	if t.Order == bus.OrderStrict {
		fact("order", t.Order)
	}
	if t.Number != 0 {
		fact("number", strconv.FormatInt(int64(t.Number), 10))
	}
	if t.End != 0 {
		fact("tag claimed below", strconv.FormatInt(int64(t.End), 10))
	}
	if !t.Since.IsZero() {
		fact("events since", cli.TimeMS(t.Since))
	}
	if len(facts) == 0 {
		return nil
	}
	return cli.PrintTable(w, facts[0], facts[1:])
}
