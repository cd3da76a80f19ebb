package generator_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
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

// A record that cannot be used, and a row of the database with the name of a strict tag, are alerts until they are
// gone.
func TestTagAlerts(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	records, numbers := memory(t), allocatortest.NewMemoryNumbers()
	withInvoice(t, records)
	records.Spoil("order", allocator.ErrDamaged)
	numbers.SetRow(allocator.Row{Name: "invoice", MaxID: 900, Step: 10})
	g := start(t, s, "n", records, func(c *generator.Config) { c.Numbers, c.Refresh = numbers, 20*time.Millisecond })
	stream := eventsOn(t, g.conn)
	one := func(what, tag string) events.Event {
		t.Helper()
		testkit.Eventually(t, what, func() bool { return len(stream(what)) > 0 })
		if all := stream(what); len(all) != 1 || all[0].Key != tag {
			t.Errorf("%s: %+v", what, all)
		}
		return stream(what)[0]
	}
	e := one("leaf.tag.damaged", "order")
	if e.Severity != "alert" || e.Body.(events.TagProblem).Error != allocator.ErrDamaged.Error() {
		t.Errorf("the alert is %+v", e)
	}
	one("leaf.tag.shadowed", "invoice")
	g.refuses(t, "order", 1, bus.StoreUnavailable)
	if ranges, err := g.Take(t.Context(), "invoice", 1); err != nil || ranges[0].First != 1 {
		t.Errorf("beside the row it hands out %v, %v", ranges, err)
	}
	numbers.DeleteRow("invoice")
	if e := one("leaf.tag.recovered", "invoice"); e.Body.(events.Recovered).Episode != "shadowed" {
		t.Errorf("the end is %+v", e)
	}
	update(t, g.conn, `{"tag":"invoice","description":"bills"}`)
	reply, code := ask(t, g.conn, admin.SubjectTagsCreate, `{"tag":"order","max_id":"5000"}`) // replaces the record
	if code != "" {
		t.Fatalf("%s %s", code, reply)
	}
	testkit.Eventually(t, "both ends", func() bool { return len(stream("leaf.tag.recovered")) == 2 })
	if ranges, err := g.Take(t.Context(), "order", 1); err != nil || ranges[0].First != 5000 {
		t.Errorf("afterwards it hands out %v, %v", ranges, err)
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

// TestTagOfTheStartOfAnotherKind: a tag of the start whose name others know as a strict one stops no other tag.
func TestTagOfTheStartOfAnotherKind(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	records := memory(t)
	add(t, records, allocator.Tag{Name: "invoice", Order: allocator.Strict})
	start(t, s, "knows", records, nil).takeAll(t, "invoice", 1)
	records.Lose()
	add(t, records, allocator.Tag{Name: "order", Step: 10})
	g := start(t, s, "n", records, func(c *generator.Config) {
		c.Tags = []allocator.Tag{{Name: "invoice", MaxID: 1, Step: 10}}
	})
	testkit.Eventually(t, "it is prepared", g.Initialised)
	g.takeAll(t, "order", 1)
}
