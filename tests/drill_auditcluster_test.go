//go:build drills

package tests

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
)

// tracer traces the newest ID of a load again and again.
type tracer struct {
	tag      string // empty: snowflakes
	newest   atomic.Int64
	mu       sync.Mutex
	outcomes map[bus.TraceOutcome]int
	failed   int // traces that could not read the evidence
}

// run traces until the context ends. An ID that a caller has is never unclaimed.
func (r *tracer) run(ctx context.Context, t *testing.T, c *bus.Client) {
	for ctx.Err() == nil {
		id := bus.ID(r.newest.Load())
		req := bus.TraceRequest{Tag: r.tag, ID: id}
		if r.tag == "" {
			req = bus.TraceRequest{Snowflake: id}
		}
		if id > 0 {
			found, err := c.Trace(ctx, req)
			r.mu.Lock()
			if err != nil {
				r.failed++
			} else {
				r.outcomes[found.Outcome]++
			}
			r.mu.Unlock()
			if err == nil && (found.Outcome == bus.NotClaimed || found.Outcome == bus.Impossible || len(found.Claims) > 1) {
				t.Errorf("a caller has %d of %q, and a trace says at %v: %+v", id, r.tag, time.Now().Format(time.TimeOnly), found)
			}
		}
		select { // leave the others some of the machine
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// Three NATS servers are stopped, cut off, delayed and come back, and generators are killed and frozen. So replicas lag behind, by up to
// many seconds. Audits and traces, through each server, never call unclaimed what was claimed.
func TestDrillAuditInACluster(t *testing.T) {
	seed := allocatortest.Seed(t)
	c := newThreeServers(t)
	urls := []string{c.url(0), c.url(1), c.url(2)}
	all := strings.Join(urls, ",")
	f := &fleet{t: t, args: []string{"-s", all, "--tag", "order:200", "--max-step", "400", "--worker-reserve", "3s", "--worker-grace", "1s"}}
	for range urls {
		f.grow()
	}
	var auditors []*auditor
	var tracers []*tracer
	var loads []*load
	ctx, cancel := context.WithCancel(t.Context())
	var tracing sync.WaitGroup
	defer func() { cancel(); tracing.Wait() }()
	for _, tag := range []string{"order", ""} {
		r := &tracer{tag: tag, outcomes: make(map[bus.TraceOutcome]int)}
		tracers = append(tracers, r)
		loads = append(loads, startLoad(t, loadConfig{
			tag: tag, callers: 2, maxBatch: 100, patience: probeDeadline, mayGiveUp: true,
			expected: append(slices.Clone(anyRefusal), bus.NoWorkerID, bus.ClockBackwards), each: func(ids bus.Range) { r.newest.Store(ids.Last) },
		}, all))
	}
	for _, url := range urls {
		auditors = append(auditors, startAuditor(t, url))
		for _, r := range tracers {
			from := client(t, url)
			tracing.Go(func() { r.run(ctx, t, from) })
		}
	}
	for until := time.Now().Add(time.Minute); time.Now().Before(until); {
		c.disturb(f, seed.IntN(5), seed.IntN(3), time.Duration(1000+seed.IntN(6000))*time.Millisecond)
		for _, l := range loads {
			l.more(100)
			l.checkIDs()
		}
	}
	cancel()
	tracing.Wait()
	for _, a := range auditors {
		a.stop()
	}
	for _, r := range tracers {
		t.Logf("traces of %q: %v, and %d could not read the evidence", r.tag, r.outcomes, r.failed)
	}
	for _, l := range loads {
		l.stop()
	}
}

// disturb does one of the kinds of harm to a server or a generator, and heals it.
func (c *threeServers) disturb(f *fleet, kind, i int, pause time.Duration) {
	c.t.Helper()
	what := []string{"server stopped", "server cut off", "routes delayed", "generator killed", "generator frozen"}[kind]
	c.t.Logf("%v: %s: %d, for %v", time.Now().Format(time.TimeOnly), what, i, pause)
	delay := func(d time.Duration) {
		for j := range c.servers {
			if j != i {
				c.routes[i][j].Delay(d)
				c.routes[j][i].Delay(d)
			}
		}
	}
	rest := func() { time.Sleep(pause) }
	switch kind {
	case 0:
		c.servers[i].Close()
		rest()
		c.servers[i].start()
		c.awaitHealth(i)
	case 1:
		c.cut(i)
		rest()
		c.heal(i)
	case 2:
		delay(1200 * time.Millisecond)
		rest()
		delay(0)
	case 3:
		f.crash(i, rest)
	default:
		f.generators[i].freeze()
		rest()
		f.generators[i].signal(syscall.SIGCONT)
	}
}
