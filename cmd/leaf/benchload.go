package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/internal/cli"
	"github.com/leafbus/leafbus/internal/load"
)

// bench is a load on an installation: callers that get IDs, and what came of it.
type bench struct {
	cfg     *benchFlags
	get     getter
	callers []benchCaller
	seen    audit.Runs
	before  int64 // IDs of the first request

	mu       sync.Mutex
	failures map[string]*failure // by reason
}

// benchCaller is what a caller counts for itself, so that callers do not disturb each other.
type benchCaller struct {
	ids      []bus.Range   // not in seen yet
	taken    int64         // IDs
	adding   time.Duration // spent on adding IDs to seen
	requests atomic.Int64  // answered with IDs
	_        [64]byte      // the next caller's counter is in another cache line
}

// failure is requests that failed for the same reason.
type failure struct {
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
	First  string `json:"first"` // the first one's error
}

// How many runs a caller collects before it compares them with those of the others. Many
// at a time are cheap. Those of all callers must not need more than 40 MiB.
const (
	allHeld   = 1 << 20
	leastHeld = 1 << 8
	mostHeld  = 1 << 12
)

// mostRuns takes 128 MiB, and 550 MiB at the most while lists grow and garbage waits.
const mostRuns = 1 << 23

var (
	errLostConnection = errors.New("the connection is lost")
	errTooManyRuns    = fmt.Errorf("the IDs are in more than %d runs, which is all that is remembered", mostRuns)
)

func newBench(f *benchFlags, get getter) *bench {
	return &bench{cfg: f, get: get, callers: make([]benchCaller, f.load.Callers), failures: make(map[string]*failure)}
}

// first makes a request that is not measured. Its error is what every later request would
// get too. After it, the first segment or pool is there.
func (b *bench) first(ctx context.Context) error {
	ids, err := b.get(ctx, nil)
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted")
	case err != nil:
		return err
	}
	b.seen.Add(ids...)
	for _, r := range ids {
		b.before += r.Len()
	}
	return nil
}

// run makes the load.
func (b *bench) run(ctx context.Context) *benchReport {
	result, stopped := b.cfg.load.Run(ctx, b.work)
	if ctx.Err() != nil {
		stopped = errors.New("interrupted")
	}
	for i := range b.callers {
		b.seen.Add(b.callers[i].ids...)
	}
	return b.report(result, stopped)
}

// work is one caller's. It compares its IDs with those of all others itself, and makes no
// request meanwhile: a check that cannot keep up slows the load, and needs no queue.
func (b *bench) work(ctx context.Context, c *load.Caller) error {
	held := min(max(allHeld/len(b.callers), leastHeld), mostHeld)
	own := &b.callers[c.Number]
	var spare []bus.Range
	for c.Next() {
		ids, err := b.get(ctx, spare)
		c.End(err)
		if err != nil {
			if ctx.Err() != nil {
				return nil // the request failed because the load ends
			}
			b.fail(err)
			if errors.Is(err, nats.ErrConnectionClosed) {
				return errLostConnection
			}
			continue
		}
		spare = ids[:0]
		own.requests.Store(own.requests.Load() + 1)
		for _, r := range ids {
			own.taken += r.Len()
			own.ids = allocator.AppendRange(own.ids, r)
		}
		if len(own.ids) >= held {
			fits := b.seen.Add(own.ids...) <= mostRuns
			own.ids = own.ids[:0]
			own.adding += c.Rest()
			if !fits {
				return errTooManyRuns
			}
		}
	}
	return nil
}

// fail counts a request that failed.
func (b *bench) fail(err error) {
	reason := errorKind(err)
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.failures[reason]
	if f == nil {
		f = &failure{Reason: reason, First: err.Error()}
		b.failures[reason] = f
	}
	f.Count++
}

// errorKind is a word for an error: a generator's reason, or what NATS says.
func errorKind(err error) string {
	if reason, ok := errors.AsType[bus.Reason](err); ok {
		return string(reason)
	}
	for _, k := range []struct {
		err  error
		kind string
	}{
		{nats.ErrNoResponders, "no_generator"},
		{nats.ErrPermissionViolation, "not_permitted"},
		{nats.ErrConnectionClosed, "disconnected"},
		{nats.ErrDisconnected, "disconnected"},
		{nats.ErrConnectionReconnecting, "disconnected"},
		{nats.ErrReconnectBufExceeded, "disconnected"},
		{context.DeadlineExceeded, "no_answer"},
		{nats.ErrTimeout, "no_answer"},
	} {
		if errors.Is(err, k.err) {
			return k.kind
		}
	}
	return "other"
}

// watch shows on a terminal how far the load is. Call ended after the load.
func (b *bench) watch(w io.Writer) (ended func()) {
	p := cli.NewProgress(w)
	begun := time.Now()
	var last int64
	stop := every(cli.ProgressEvery, func() {
		var sum int64
		for i := range b.callers {
			sum += b.callers[i].requests.Load()
		}
		p.Line("%v of %v, %d requests, %.0f/s", time.Since(begun).Round(time.Second), b.cfg.load.Duration, sum, float64(sum-last)/cli.ProgressEvery.Seconds())
		last = sum
	})
	return func() { stop(); p.End() }
}

// every calls look again and again, until stop is called. Then no call is under way.
func every(d time.Duration, look func()) (stop func()) {
	done := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		for looks := time.Tick(d); ; {
			select {
			case <-done:
				return
			case <-looks:
				look()
			}
		}
	})
	return func() { close(done); looking.Wait() }
}
