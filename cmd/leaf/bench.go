package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/internal/load"
)

// mostCallers bounds the memory of their histograms, 42 KiB each.
const mostCallers = 5000

// mostRate is more requests a second than any client makes.
const mostRate = 1_000_000_000

func newBenchCmd() *cobra.Command {
	var f cli.Client
	var l load.Load
	var count int64 // IDs in each request
	cmd := &cobra.Command{
		Use:   "bench [TAG]",
		Short: "Load a running installation, and report its speed",
		Long: `Load a running installation. Report how many IDs it gives, how long requests take,
and whether an ID came twice: then the exit status is 1. Without TAG it takes
snowflakes. The IDs that it takes are gaps afterwards. With --rate a latency begins
when the request was due. Run it on another machine than the generators.`,
		Example: `  leaf bench                                     snowflakes, 64 callers, 10 s
  leaf bench order --callers 1                   how long one caller waits
  leaf bench order -n 1000 --duration 1m
  leaf bench order --rate 5000 --json            latencies at a load like yours`,
	}
	f.Command(cmd, func(s *cli.Session, args []string) error {
		c := s.IDs(bus.NoHedging()) // hedges would hide how slow a generator is
		r, err := runBench(s.Context(), l, func(ctx context.Context) ([]bus.Range, error) {
			if len(args) == 0 {
				return c.Snowflakes(ctx, count)
			}
			return c.Take(ctx, args[0], count)
		})
		if err != nil {
			return err
		}
		if r.Stopped != "" {
			s.Warnf("it ended early: %s", r.Stopped)
		}
		return cmp.Or(s.Print(r, r.print), r.problem())
	})
	fs := cmd.Flags()
	cli.Number(fs, &l.Callers, "callers", 64, 1, mostCallers, "callers at a time")
	cli.Number(fs, &count, "count,n", 1, 1, math.MaxInt64, "IDs in each request")
	cli.Number(fs, &l.Duration, "duration", 10*time.Second, 1, math.MaxInt64, "how long requests are made")
	cli.Number(fs, &l.Calls, "requests", 0, 0, math.MaxInt64, "end after so many requests, if that is earlier")
	cli.Number(fs, &l.Rate, "rate", 0, 0, mostRate, "requests a second of all callers (default as many as they can)")
	return cmd
}

// problem is the error of IDs that came twice, or of a load of which nothing succeeded.
func (r *benchReport) problem() error {
	switch {
	case r.Repeated > 0:
		return fmt.Errorf("%d IDs CAME MORE THAN ONCE, among them %s: use no IDs of this installation until it is known why",
			r.Repeated, strings.Join(r.Repeats, ", "))
	case r.Requests == 0 && len(r.Errors) > 0:
		return errors.New("no request succeeded: " + r.Errors[0].First)
	}
	return nil
}

func (r *benchReport) print(w io.Writer) {
	var latency []string
	for _, p := range percentiles {
		at := time.Duration(r.Latency[p.name] * 1e3)
		latency = append(latency, p.name+" "+at.Round(max(1, at/1000)).String())
	}
	rows := []cli.Row{
		{"requests", fmt.Sprintf("%d in %.1f s, %.0f a second", r.Requests, r.Seconds, r.RequestsPerSecond)},
		{"IDs", fmt.Sprintf("%d, %.0f a second", r.IDs, r.IDsPerSecond)},
		{"came twice", cmp.Or(strings.Join(r.Repeats, ", "), "none")},
		{"latency", strings.Join(latency, ", ")},
	}
	for _, f := range r.Errors {
		rows = append(rows, cli.Row{"errors", fmt.Sprintf("%d %s: %s", f.Count, f.Reason, f.First)})
	}
	cli.PrintTable(w, rows...)
}
