package main

import (
	"cmp"
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
	"github.com/leafbus/leafbus/bus/idspace"
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

Claimed does not mean that a caller got the ID. If two generators claimed one ID, the
exit status is 1. docs/operate.md#audit has the answers.`,
		Example: `  leaf trace order 4711
  leaf trace order 4711 --json
  leaf trace --snowflake 2056789012345678901`,
		Args: func(cmd *cobra.Command, args []string) (err error) {
			tag, id, err = traced(cmd, args)
			return err
		},
	}
	cmd.Flags().String("snowflake", "", "trace this snowflake `ID`")
	return f.Command(cmd, func(s *cli.Session, _ []string) (err error) {
		var t audit.Trace
		if from := kvstore.AuditSource(s.Admin, s.JS); tag == "" {
			t, err = audit.TraceSnowflake(s.Context(), from, id)
		} else {
			t, err = audit.TraceTag(s.Context(), from, tag, int64(id))
		}
		if errors.Is(err, allocator.ErrUnknownTag) {
			return unknownTag(tag)
		}
		if err != nil {
			return err
		}
		return printTraced(s, t)
	})
}

// printTraced writes a trace. Two claims of one ID are an error.
func printTraced(s *cli.Session, t audit.Trace) error {
	err := s.Print(t, func(w io.Writer) { printTrace(w, t) })
	if len(t.Claims) > 1 {
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
func printTrace(w io.Writer, t audit.Trace) {
	fmt.Fprintln(w, cli.Safe(fmt.Sprintf("%s %d: %s", cmp.Or(t.Tag, "snowflake"), t.ID, t.Message)))
	var facts []cli.Row
	fact := func(given bool, name string, value any) {
		if given {
			facts = append(facts, cli.Row{name, value})
		}
	}
	for _, c := range t.Claims {
		fact(true, "generator", c.Node)
		fact(c.First == 0, "held since", cli.TimeMS(c.Time))
		fact(c.First != 0, "claimed at", cli.TimeMS(c.Time))
		fact(c.First != 0, "range", fmt.Sprintf("%d-%d", c.First, c.Last))
		fact(c.Cause != "", "cause", c.Cause)
		fact(c.Record && t.Order != idspace.OrderStrict, "source", "the record; no event has it")
		fact(c.Record && t.Order == idspace.OrderStrict, "source", "the record; a strict tag has no events of its claims")
	}
	if d := t.Decoded; d != nil {
		fact(true, "time", cli.TimeMS(time.UnixMilli(d.UnixMS)))
		fact(true, "worker", d.Worker)
		fact(true, "sequence", d.Sequence)
	}
	fact(!t.ReservedUntil.IsZero(), "worker claimed until", cli.TimeMS(t.ReservedUntil))
	fact(t.Order == idspace.OrderStrict, "order", t.Order)
	fact(t.Number != 0, "number", t.Number)
	fact(t.End != 0, "tag claimed below", t.End)
	fact(!t.Since.IsZero(), "events since", cli.TimeMS(t.Since))
	cli.PrintTable(w, facts...)
}
