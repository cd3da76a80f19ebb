package generator_test

import (
	"cmp"
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
	mu       sync.Mutex
	answers  []string
	refilled bool
	late     bool // an answer took no time
}

func (o *observer) Answered(a generator.Answer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answers = append(o.answers, fmt.Sprintf("%v %v %d %q waited=%v", a.Transport, a.Kind, a.IDs, a.Reason, a.Waited))
	o.late = o.late || a.Took <= 0
}

func (o *observer) Allocated(e allocator.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r, ok := e.(allocator.Refilled); ok && r.Tag == "order" {
		o.refilled = true
	}
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
	store := &switched{Records: memory(t, "order", "other")}
	g := start(t, s, "a", store, func(c *generator.Config) { c.Observer = &o })
	observed := func(answer string) {
		t.Helper()
		testkit.Eventually(t, "the answer is observed", func() bool { // it is reported after it was sent
			o.mu.Lock()
			defer o.mu.Unlock()
			return len(o.answers) > 0
		})
		if got := o.heard(); !slices.Equal(got, []string{answer}) {
			t.Errorf("observed %q, want %q", got, answer)
		}
	}
	if reply, _ := ask(t, nc, "leaf.segment.order", "3"); reply != "1-3" {
		t.Errorf("over NATS %q", reply)
	}
	observed(`nats segment 3 "" waited=true`)
	if ids, err := g.Take(t.Context(), "order", 4); err != nil || !slices.Equal(ids, []bus.Range{{First: 4, Last: 7}}) {
		t.Errorf("in the process %v, %v", ids, err)
	}
	observed(`http segment 4 "" waited=false`)
	flakes, err := g.Snowflakes(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	observed(`http snowflake 1 "" waited=false`)
	if decoded, err := g.Decode(fmt.Sprint(flakes[0].First)); err != nil || decoded.Worker != *g.State().Worker {
		t.Errorf("%+v, %v", decoded, err)
	}
	if _, err := g.Take(t.Context(), "a b", 1); !errors.Is(err, bus.BadTag) {
		t.Errorf("a bad tag: %v", err)
	}
	observed(`http segment 0 "bad_tag" waited=false`)

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
	observed(`http segment 0 "canceled" waited=true`)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.late || !o.refilled {
		t.Errorf("an answer took no time: %v; a refill: %v", o.late, o.refilled)
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

// A caller reads the reason, and not the cause: that names hosts, databases and users.
func TestCausesAreNotForCallers(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	store := &switched{Records: memory(t, "order")}
	store.away.Store(true)
	g := start(t, s, "a", store, func(c *generator.Config) {
		c.MaxWait, c.Snowflake.Registry = 50*time.Millisecond, noRegistry{c.Snowflake.Registry}
	})
	for what, take := range map[string]func() error{
		"order":       func() error { _, err := g.Take(t.Context(), "order", 1); return err },
		"a snowflake": func() error { _, err := g.Snowflakes(t.Context(), 1); return err },
		"order over NATS": func() error {
			msg, err := nc.Request("leaf.segment.order", nil, testkit.Patience)
			return cmp.Or(err, bus.ReplyError(msg))
		},
	} {
		testkit.Eventually(t, what+" is refused with a reason", func() bool { // the first may only have waited too long
			err := take()
			if err == nil || strings.Contains(err.Error(), "unplugged") || strings.Contains(err.Error(), "away") {
				t.Fatalf("%s: %v", what, err)
			}
			return strings.Contains(err.Error(), "leaf doctor")
		})
	}
}
