package generator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

func TestReadiness(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	var open, full atomic.Bool
	records := memory(t, "order")
	g := start(t, s, "a", records, func(c *generator.Config) {
		c.NATSErr = func() error {
			if full.Load() {
				return errors.New("the disk is full")
			}
			return nil
		}
		c.Open = func(context.Context) error {
			if !open.Load() {
				return errors.New("unreachable")
			}
			return nil
		}
	})
	want := func(segment, snowflake bool, missing string, reasons ...string) {
		t.Helper()
		var r admin.Readiness
		testkit.Eventually(t, fmt.Sprintf("what is missing is %q", missing), func() bool {
			r = g.Readiness()
			return strings.Join(r.Missing, " ") == missing && r.Segment == segment && r.Snowflake == snowflake
		})
		for i, what := range r.Missing {
			if !strings.Contains(r.Reasons[what], reasons[i]) {
				t.Errorf("%s is missing because %q, want %q", what, r.Reasons[what], reasons[i])
			}
		}
		if r.Ready != (missing == "") || len(r.Reasons) != len(r.Missing) {
			t.Errorf("%+v", r)
		}
		if g.Initialised() != open.Load() {
			t.Errorf("initialised: %v", g.Initialised())
		}
	}
	want(false, true, "store", "unreachable")
	open.Store(true)
	want(true, true, "")
	if over, _ := state(t, nc, "a"); !over.Ready || !over.Segment || !over.Snowflake {
		t.Errorf("over the bus it is %+v", over.Readiness)
	}
	if ids, err := g.Take(t.Context(), "order", 1); err != nil {
		t.Fatal(ids, err)
	}
	records.SetErr(errors.New("unplugged")) // and so it serves from memory
	want(true, true, "store", "unplugged")
	if over, _ := state(t, nc, "a"); over.Ready || !over.Segment || over.Reasons["store"] != "unplugged" {
		t.Errorf("over the bus it is %+v", over.Readiness)
	}
	full.Store(true)
	want(true, true, "nats store", "the disk is full", "unplugged")
	testkit.Eventually(t, "the alert", func() bool {
		return slices.ContainsFunc(g.State().Findings, func(f admin.Finding) bool { return f.Kind == "nats.degraded" })
	})
	records.SetErr(nil)
	full.Store(false)
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	want(false, false, "worker draining", "shutting down", "shutting down")
}

// A load balancer that uses it must not be left without a generator. So a generator that cannot answer
// is wanted as long as it knows of no other that can.
func TestWanted(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	shared := memory(t, "order", "other")
	stores := map[string]*switched{"a": {Records: shared.Open()}, "b": {Records: shared.Open()}}
	g := make(map[string]*running)
	for node, store := range stores {
		g[node] = start(t, s, node, store, func(c *generator.Config) { c.MaxWait = 100 * time.Millisecond })
	}
	want := func(a, b bool) {
		t.Helper()
		testkit.Eventually(t, fmt.Sprintf("a is wanted: %v, b: %v", a, b), func() bool {
			return g["a"].Wanted(generator.SegmentKind) == a && g["b"].Wanted(generator.SegmentKind) == b
		})
	}
	dry := func(node string) { // it has nothing, and gets nothing
		t.Helper()
		stores[node].away.Store(true)
		if _, err := g[node].Take(t.Context(), "order", 1000); err == nil {
			t.Fatal("there were IDs")
		}
	}
	want(true, true)
	dry("a")
	want(false, true)
	dry("b")
	want(true, true)
	for node := range g {
		if r := g[node].Readiness(); r.Ready || r.Segment || !r.Snowflake || !g[node].Wanted(generator.SnowflakeKind) {
			t.Errorf("%s: %+v", node, r)
		}
	}
	stores["b"].away.Store(false)
	want(false, true)
	if err := g["b"].stop(); err != nil {
		t.Fatal(err)
	}
	want(true, false)
}
