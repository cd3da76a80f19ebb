package generator_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// Records that are unavailable for a while are an alert, once an episode, and missing in the state. IDs
// come from memory meanwhile.
func TestRecordsUnavailable(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	records := memory(t, "order")
	fine := time.Now() // the look that finds the records away may have begun before it was
	g := start(t, s, "n", records, nil)
	stream := eventsOn(t, nc)
	for episode := 1; episode <= 2; episode++ {
		records.SetErr(errors.New("no leader"))
		r := g.Readiness()
		if r.Ready || strings.Join(r.Missing, " ") != "store" || r.Reasons["store"] != "no leader" || !r.Segment {
			t.Errorf("readiness: %+v", r)
		}
		testkit.Eventually(t, "the alert", func() bool { return len(stream("leaf.records.unavailable")) == episode })
		e := stream("leaf.records.unavailable")[episode-1]
		body := e.Body.(events.Unavailable)
		since := time.UnixMilli(body.SinceMS)
		if since.Before(fine.Truncate(time.Millisecond)) || since.After(e.Time.Add(-900*time.Millisecond)) {
			t.Errorf("the records went away after %v, the alert of %v says %v", fine, e.Time, since)
		}
		const want = `{"node":"n","error":"no leader","since_ms":`
		if e.Key != "n" || e.Severity != "alert" || !strings.HasPrefix(string(e.Data), want) {
			t.Errorf("the alert is %+v: %s", e, e.Data)
		}
		if _, err := g.Take(t.Context(), "order", 1); err != nil {
			t.Errorf("it does not go on: %v", err)
		}
		records.SetErr(nil)
		testkit.Eventually(t, "its end", func() bool { return len(stream("leaf.records.recovered")) == episode })
		e = stream("leaf.records.recovered")[episode-1]
		if e.Key != "n" || e.Severity != "info" || string(e.Data) != `{"node":"n","episode":"unavailable"}` {
			t.Errorf("its end is %+v: %s", e, e.Data)
		}
		if r := g.Readiness(); !r.Ready {
			t.Errorf("readiness: %+v", r)
		}
		fine = stream("leaf.records.recovered")[episode-1].Time
	}
	if n := len(stream("leaf.records.unavailable")); n != 2 {
		t.Errorf("%d alerts of two episodes", n)
	}
}

// rowless are numbers that refuse the first row: the connection is lost.
type rowless struct {
	allocator.Numbers
	refused atomic.Bool
}

func (r *rowless) Add(ctx context.Context, row allocator.Row) error {
	if !r.refused.Swap(true) {
		return allocator.ErrUnavailable
	}
	return r.Numbers.Add(ctx, row)
}

// TestTagOfTheStartGetsItsRow: a tag of the start whose row could not be made after its record is served soon.
func TestTagOfTheStartGetsItsRow(t *testing.T) {
	t.Parallel()
	numbers := &rowless{Numbers: allocatortest.NewMemoryNumbers()}
	g := start(t, natskit.Start(t), "n", memory(t), func(c *generator.Config) {
		c.Numbers, c.Tags = numbers, []allocator.Tag{{Name: "order", MaxID: 1, Step: 10}}
	})
	if ranges, err := g.Take(t.Context(), "order", 1); err != nil || !numbers.refused.Load() {
		t.Errorf("%v, %v", ranges, err)
	}
}

// TestTagOfTheStartOfAnotherKind: a tag of the start whose name others know as a strict one stops no other tag, nor does
// one with a damaged record.
func TestTagOfTheStartOfAnotherKind(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	records := memory(t)
	add(t, records, allocator.Tag{Name: "invoice", Order: allocator.Strict})
	start(t, s, "knows", records, nil).takeAll(t, "invoice", 1)
	records.Lose()
	add(t, records, allocator.Tag{Name: "order", Step: 10})
	records.Spoil("bad", allocator.ErrDamaged)
	g := start(t, s, "n", records, func(c *generator.Config) {
		c.Tags = []allocator.Tag{{Name: "invoice", MaxID: 1, Step: 10}, {Name: "bad", MaxID: 1, Step: 10}}
	})
	testkit.Eventually(t, "it is prepared", g.Initialised)
	g.takeAll(t, "order", 1)
}

// TestRegistryUnavailable: a registry of workers that does not answer is an alert and a finding, although the generator
// is ready and gives snowflakes.
func TestRegistryUnavailable(t *testing.T) {
	t.Parallel()
	registry := newRegistry(snowflaketest.NewMemory())
	g := start(t, natskit.Start(t), "n", memory(t), on(newClock(), registry))
	stream := eventsOn(t, g.conn)
	finds := func() bool {
		return slices.ContainsFunc(g.State().Findings, func(f admin.Finding) bool {
			return f.Kind == "registry.unavailable" && f.Severity == admin.Problem && f.Message != "" && f.Count == 0
		})
	}
	testkit.Eventually(t, "it is ready", func() bool { return g.Readiness().Ready })
	registry.away.Store(true)
	testkit.Eventually(t, "the finding", finds)
	if r := g.Readiness(); !r.Ready || !r.Snowflake {
		t.Errorf("readiness: %+v", r)
	}
	testkit.Eventually(t, "the alert", func() bool { return len(stream("leaf.registry.unavailable")) == 1 })
	registry.away.Store(false)
	testkit.Eventually(t, "its end", func() bool { return len(stream("leaf.registry.recovered")) == 1 && !finds() })
}
