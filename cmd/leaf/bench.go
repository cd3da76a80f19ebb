package main

import (
	"cmp"
	"context"
	"slices"
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

// The ways to get IDs, values of --with.
const (
	withTake = "take"
	withNext = "next"
	withPool = "pool"
)

// benchFlags say what load to make.
type benchFlags struct {
	cli.Client
	tag   string // empty: snowflakes
	with  string
	count int64 // IDs in each request
	load  load.Load
}

func newBenchCmd() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench [TAG]",
		Short: "Load a running installation, and report its speed",
		Long: `Load a running installation. Report how many IDs it gives, how long requests take,
and whether an ID came twice. Without TAG it takes snowflakes. The IDs of TAG that it
takes are gaps afterwards. With --with pool, up to a million more are gaps.

--with says how callers get IDs: each with its own request (take), with requests that
they share (next), or from IDs that this process has fetched ahead (pool; not of strict
tags). The first request is not measured. Latencies are of requests that succeeded, with
an error of 1 %. With --rate a latency begins when the request was due.

If an ID came twice, the command names it, and the exit status is 1. Run it on another
machine than the generators: it needs as much processor time as they do.`,
		Example: `  leaf bench                                     snowflakes, 64 callers, 10 s
  leaf bench order --callers 1                   how long one caller waits
  leaf bench order -n 1000 --duration 1m
  leaf bench order --with next --callers 1000
  leaf bench order --rate 5000 --json            latencies at a load like yours`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, args)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.with, "with", withTake, "how callers get IDs: take, next or pool")
	fs.IntVar(&f.load.Callers, "callers", 64, "callers at a time")
	fs.Int64VarP(&f.count, "count", "n", 1, "IDs in each request, with take")
	fs.DurationVar(&f.load.Duration, "duration", 10*time.Second, "how long requests are made")
	fs.Int64Var(&f.load.Calls, "requests", 0, "end after so many requests, if that is earlier")
	fs.Float64Var(&f.load.Rate, "rate", 0, "requests a second of all callers (default as many as they can)")
	f.Register(cmd)
	cli.CompleteValues(cmd, "with", withTake+"\ta request each", withNext+"\tcallers share requests",
		withPool+"\tfetched ahead")
	cmd.ValidArgsFunction = f.CompleteTags(1)
	return cmd
}

// check refuses what makes no load.
func (f *benchFlags) check(args []string) error {
	l := f.load
	switch {
	case len(args) == 1 && args[0] == "":
		return cli.Usagef("TAG is empty: leave it out for snowflakes")
	case !slices.Contains([]string{withTake, withNext, withPool}, f.with):
		return cli.Usagef("--with is %q, not %s, %s or %s", f.with, withTake, withNext, withPool)
	case l.Callers < 1 || l.Callers > mostCallers:
		return cli.Usagef("--callers is %d, not from 1 to %d", l.Callers, mostCallers)
	case f.count < 1:
		return cli.Usagef("--count is %d, not at least 1", f.count)
	case f.count > 1 && f.with != withTake:
		return cli.Usagef("--count is for --with %s: %s gets one ID at a time", withTake, f.with)
	case l.Duration <= 0:
		return cli.Usagef("--duration is %v, not above zero", l.Duration)
	case l.Calls < 0:
		return cli.Usagef("--requests is %d, not at least 0", l.Calls)
	case !(l.Rate >= 0 && l.Rate <= mostRate): // NaN is neither
		return cli.Usagef("--rate is %v, not from 0 to %d", l.Rate, mostRate)
	}
	return nil
}

func (f *benchFlags) run(cmd *cobra.Command, args []string) error {
	if err := f.check(args); err != nil {
		return err
	}
	f.tag = strings.Join(args, "")
	nc, err := f.Connect(cmd)
	if err != nil {
		return err
	}
	defer nc.Close()
	client := bus.NewClient(nc, bus.Timeout(f.Timeout), bus.NoHedging()) // hedges would hide how slow a generator is
	get, end, err := f.getter(client)
	if err != nil {
		return err
	}
	defer end()
	b := &bench{load: f.load, get: get, callers: make([]benchCaller, f.load.Callers), failures: make(map[string]*failure)}
	if err := b.first(cmd.Context()); err != nil {
		return err
	}
	r := b.run(cmd.Context())
	if r.Stopped != "" {
		cli.Warnf(cmd, "it ended early: %s", r.Stopped)
	}
	if f.JSON {
		err = cli.PrintJSON(cmd.OutOrStdout(), r)
	} else {
		err = r.printText(cmd.OutOrStdout())
	}
	return cmp.Or(err, r.problem())
}

// getter gets IDs.
type getter func(ctx context.Context) ([]bus.Range, error)

// getter returns how callers get IDs. Call end after the last one.
func (f *benchFlags) getter(c *bus.Client) (get getter, end func(), err error) {
	take, next, open := c.Snowflakes, c.NextSnowflake, c.SnowflakePool
	if f.tag != "" {
		take = func(ctx context.Context, n int64) ([]bus.Range, error) { return c.Take(ctx, f.tag, n) }
		next = func(ctx context.Context) (int64, error) { return c.Next(ctx, f.tag) }
		open = func(opts ...bus.PoolOption) (*bus.Pool, error) { return c.Pool(f.tag, opts...) }
	}
	end = func() {}
	switch f.with {
	case withTake:
		return func(ctx context.Context) ([]bus.Range, error) { return take(ctx, f.count) }, end, nil
	case withPool:
		pool, err := open()
		if err != nil {
			return nil, nil, err
		}
		next, end = pool.Next, func() { pool.Close() }
	}
	return func(ctx context.Context) ([]bus.Range, error) {
		id, err := next(ctx)
		return []bus.Range{{First: id, Last: id}}, err
	}, end, nil
}
