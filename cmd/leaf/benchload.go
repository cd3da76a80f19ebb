package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/load"
)

const (
	// held is how many runs a caller collects before it compares them with those of the others.
	held = 1 << 10
	// mostRuns take 128 MiB, and three times as much while they are compared.
	mostRuns = 1 << 23
)

// bench is a load on an installation: callers that get IDs, and what came of it.
type bench struct {
	get  func(context.Context) ([]bus.Range, error)
	seen audit.Runs

	mu       sync.Mutex
	failures map[string]*failure // by reason
}

// failure is requests that failed for the same reason.
type failure struct {
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
	First  string `json:"first"` // the first one's error
}

// benchReport is what a load found, as --json writes it. Latencies are of requests that succeeded,
// in µs.
type benchReport struct {
	Seconds           float64            `json:"seconds"`
	Requests          int64              `json:"requests"` // answered with IDs
	RequestsPerSecond float64            `json:"requests_per_second"`
	IDs               int64              `json:"ids"`
	IDsPerSecond      float64            `json:"ids_per_second"`
	Latency           map[string]float64 `json:"latency_us"`
	Errors            []failure          `json:"errors"`
	Repeated          int64              `json:"repeated"`
	Repeats           []string           `json:"repeats,omitempty"` // some of the ranges that came again
	Stopped           string             `json:"stopped,omitempty"` // why the load ended early
}

// percentiles are those of a report.
var percentiles = []struct {
	name string
	at   float64
}{{"p50", 50}, {"p90", 90}, {"p99", 99}, {"p99.9", 99.9}, {"p99.99", 99.99}, {"max", 100}}

// runBench makes a load. The error is that of a first request, which is not measured: after it, the
// first segment is there, and every later request would get that error too.
func runBench(
	ctx context.Context, l load.Load, get func(context.Context) ([]bus.Range, error),
) (*benchReport, error) {
	b := bench{get: get, failures: make(map[string]*failure)}
	ids, err := get(ctx)
	if err != nil {
		return nil, err
	}
	b.seen.Add(ids...)
	result, stopped := l.Run(ctx, b.work)
	if ctx.Err() != nil {
		stopped = errors.New("interrupted")
	}
	r := &benchReport{
		Seconds: result.Elapsed.Seconds(), Requests: result.Latency.TotalCount(), RequestsPerSecond: result.PerSecond(),
		Latency: make(map[string]float64), Errors: []failure{},
	}
	for _, p := range percentiles {
		r.Latency[p.name] = float64(result.At(p.at)) / 1e3
	}
	for _, reason := range slices.Sorted(maps.Keys(b.failures)) {
		r.Errors = append(r.Errors, *b.failures[reason])
	}
	runs, repeated, again := b.seen.Finish()
	for _, run := range again {
		r.Repeats = append(r.Repeats, run.String())
	}
	r.Repeated, r.IDs = repeated, sum(runs)+repeated-sum(ids)
	r.IDsPerSecond = float64(r.IDs) / r.Seconds
	if stopped != nil {
		r.Stopped = stopped.Error()
	}
	return r, nil
}

func sum(runs []bus.Range) (ids int64) {
	for _, r := range runs {
		ids += r.Len()
	}
	return ids
}

// work is one caller's. It compares its IDs with those of all others itself, and makes no request
// meanwhile: a check that cannot keep up slows the load, and needs no queue.
func (b *bench) work(ctx context.Context, c *load.Caller) error {
	var own []bus.Range // not in seen yet
	defer func() { b.seen.Add(own...) }()
	for c.Next() {
		ids, err := b.get(ctx)
		c.End(err)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil // the request failed because the load ends
		case err != nil:
			b.fail(err)
			if errors.Is(err, nats.ErrConnectionClosed) {
				return errors.New("the connection is lost")
			}
			continue
		}
		for _, r := range ids {
			own = idspace.AppendRange(own, r)
		}
		if len(own) >= held {
			kept := b.seen.Add(own...)
			own = own[:0]
			c.Rest()
			if kept > mostRuns {
				return fmt.Errorf("the IDs are in more than %d runs, which is all that is remembered", mostRuns)
			}
		}
	}
	return nil
}

// fail counts a request that failed.
func (b *bench) fail(err error) {
	reason := "other"
	if of, ok := errors.AsType[bus.Reason](err); ok {
		reason = string(of)
	} else if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) {
		reason = "no_answer"
	} else if errors.Is(err, nats.ErrNoResponders) {
		reason = "no_generator"
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures[reason] == nil {
		b.failures[reason] = &failure{Reason: reason, First: err.Error()}
	}
	b.failures[reason].Count++
}
