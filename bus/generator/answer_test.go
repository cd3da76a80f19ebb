package generator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// observer notes what it hears.
type observer struct {
	mu      sync.Mutex
	answers []string
	refills []allocator.Refilled
	events  []string
	late    []generator.Answer // those that took no time
}

func (o *observer) Answered(a generator.Answer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answers = append(o.answers, fmt.Sprintf("%v %v %d %q waited=%v", a.Transport, a.Kind, a.IDs, a.Reason, a.Waited))
	if a.Took <= 0 {
		o.late = append(o.late, a)
	}
}

func (o *observer) Regressed(allocator.Regressed) {}

func (o *observer) Claimed(allocator.Claimed) {}

func (o *observer) Refilled(r allocator.Refilled) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refills = append(o.refills, r)
}

func (o *observer) EventPublished(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, what)
}

// heard returns the answers since it was called last.
func (o *observer) heard() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() { o.answers = nil }()
	return o.answers
}

// A caller in the process gets what a caller over NATS gets. The observer is called for both.
func TestTakeInTheProcess(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	var o observer
	store := &switched{Store: memory(t, "order", "other")}
	g := start(t, s, "a", store, func(c *generator.Config) { c.Observer = &o })
	want := func(answers ...string) {
		t.Helper()
		testkit.Eventually(t, "the answers are observed", func() bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			return len(o.answers) >= len(answers) // an answer is reported after it was sent
		})
		if got := o.heard(); !slices.Equal(got, answers) {
			t.Errorf("observed %q, want %q", got, answers)
		}
	}

	if reply, _ := ask(t, nc, "leaf.segment.order", "3"); reply != "1-3" {
		t.Errorf("over NATS %q", reply)
	}
	want(`nats segment 3 "" waited=true`)
	ids, err := g.Take(t.Context(), "order", 4)
	if err != nil || len(ids) != 1 || ids[0] != (bus.Range{First: 4, Last: 7}) {
		t.Errorf("in the process %v, %v", ids, err)
	}
	want(`http segment 4 "" waited=false`)
	if reply, _ := ask(t, nc, "leaf.segment.order", ""); reply != "8" {
		t.Errorf("over NATS %q", reply)
	}
	want(`nats segment 1 "" waited=false`)
	flakes, err := g.Snowflakes(t.Context(), 5)
	if err != nil || len(flakes) == 0 {
		t.Fatal(flakes, err)
	}
	o.heard()
	decoded, err := g.Decode(fmt.Sprint(flakes[0].First))
	reply, _ := ask(t, nc, "leaf.decode", fmt.Sprint(flakes[0].First))
	if err != nil || reply == "" || int64(decoded.ID) != flakes[0].First || decoded.Worker != *g.State().Worker {
		t.Errorf("%+v, %v; %s", decoded, err, reply)
	}
	want(`nats admin 0 "" waited=false`)

	for reason, take := range map[bus.Reason]func() error{
		bus.UnknownTag:    func() error { _, err := g.Take(t.Context(), "unknown", 1); return err },
		bus.BadTag:        func() error { _, err := g.Take(t.Context(), "a b", 1); return err },
		bus.BatchTooLarge: func() error { _, err := g.Take(t.Context(), "order", 1<<40); return err },
	} {
		err := take()
		e, ok := errors.AsType[*bus.Error](err)
		if !ok || e.Reason != reason || e.Message == "" {
			t.Errorf("%v, want %s", err, reason)
		}
		if got := o.heard(); len(got) != 1 || got[0] != fmt.Sprintf("http segment 0 %q waited=%v", reason, reason == bus.UnknownTag) {
			t.Errorf("observed %q for %s", got, reason)
		}
	}
	if _, err := g.Snowflakes(t.Context(), 0); !errors.Is(err, bus.BadRequest) {
		t.Errorf("no snowflakes: %v", err)
	}
	want(`http snowflake 0 "bad_request" waited=false`)

	// A caller that has gone is not answered. Only the observer counts it.
	store.away.Store(true)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	before := g.State().Counts
	if _, err := g.Take(gone, "other", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has gone gets %v", err)
	}
	if after := g.State().Counts; after.Requests != before.Requests || len(after.Errors) != len(before.Errors) {
		t.Errorf("a caller that has gone counts: %+v, %+v", before, after)
	}
	want(`http segment 0 "canceled" waited=true`)
	if _, err := g.Take(t.Context(), "other", 1); !errors.Is(err, bus.StoreUnavailable) && !errors.Is(err, bus.TimedOut) {
		t.Errorf("without the store %v", err)
	}

	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.late) > 0 {
		t.Errorf("these took no time: %v", o.late)
	}
	if len(o.refills) == 0 || o.refills[0].Tag != "order" || o.refills[0].First != 1 {
		t.Errorf("refills: %v", o.refills)
	}
	for _, event := range []string{"leaf.node.started", "leaf.segment.refill", "leaf.segment.refill_failed", "leaf.node.stopped"} {
		if !slices.Contains(o.events, event) {
			t.Errorf("%s is not among %q", event, o.events)
		}
	}
}

// Who asks a generator that has ended gets no ID that another might get.
func TestTakeAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	g := start(t, s, "a", memory(t, "order"), nil)
	first, err := g.Snowflakes(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	if ids, err := g.Snowflakes(t.Context(), 1); err == nil {
		t.Errorf("snowflake %v after the end, %v before it", ids, first)
	}
	if ids, err := g.Take(t.Context(), "order", 1000); !errors.Is(err, bus.Draining) {
		t.Errorf("%v, %v for what is not in memory", ids, err)
	}
}

// Before a generator hears the others, it gives no IDs to those in its process either. They wait for its start.
func TestTakeBeforeItServes(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	g, ready := begin(t, s, "a", memory(t, "order"), func(c *generator.Config) {
		c.Join = func(context.Context, func(context.Context) error) (generator.Identity, error) {
			return generator.Identity{}, errors.New("not yet")
		}
	})
	hurried, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for reason, take := range map[bus.Reason]func() ([]bus.Range, error){
		bus.StoreUnavailable: func() ([]bus.Range, error) { return g.Take(hurried, "order", 1) },
		bus.NoWorkerID:       func() ([]bus.Range, error) { return g.Snowflakes(hurried, 1) },
	} {
		if ids, err := take(); !errors.Is(err, reason) || !strings.Contains(err.Error(), "does not answer requests") {
			t.Errorf("%v, %v; want %s", ids, err, reason)
		}
	}
	if r := g.Readiness(); r.Ready || r.Reasons["bus"] == "" {
		t.Errorf("%+v", r)
	}
	if hurried.Err() == nil {
		t.Error("it was not waited for")
	}
	testkit.Eventually(t, "an ID", func() bool { _, err := g.Take(t.Context(), "order", 1); return err == nil })
	<-ready
}
