package bustest_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/bus/bustest"
)

// failing is a test that may fail without failing the one that runs it.
type failing struct {
	testing.TB
	messages []string
}

func (f *failing) Helper() {}

func (f *failing) Errorf(format string, args ...any) {
	f.messages = append(f.messages, fmt.Sprintf(format, args...))
}

func (f *failing) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}

// audited returns how Audit fails a test.
func audited(t *testing.T, g *bustest.Generator, o audit.Options) []string {
	f := &failing{TB: t}
	var running sync.WaitGroup
	running.Go(func() { g.Audit(f, o) })
	running.Wait()
	return f.messages
}

func TestAuditAgreesAlsoAfterRestarts(t *testing.T) {
	t.Parallel()
	g := bustest.Start(t, "order:50", "coupon")
	var taken audit.Taken
	var flakes audit.Runs
	take := func(tag string, n int64) {
		t.Helper()
		ids, err := g.Client().Take(t.Context(), tag, n)
		if err != nil {
			t.Fatal(err)
		}
		taken.Add(tag, ids...)
	}
	for range 3 {
		take("order", 70)
		take("coupon", 1)
		ids, err := g.Client().Snowflakes(t.Context(), 20)
		if err != nil {
			t.Fatal(err)
		}
		flakes.Add(ids...)
		if err := g.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.Client().DeleteTag(t.Context(), "coupon"); err != nil { // its IDs stay claimed
		t.Fatal(err)
	}
	report := g.Audit(t, audit.Options{Taken: &taken, TakenSnowflakes: &flakes})
	if report.Taken.IDs != 213 || report.TakenSnowflakes.IDs != 60 || len(report.Tags) != 2 || report.Events == 0 || len(report.Workers) != 1 {
		t.Errorf("the report is %+v, with %+v", report, report.Taken)
	}
	g.Audit(t, audit.Options{})
}

// Of a strict tag only the last claim is recorded. That is enough to find IDs that were never claimed.
func TestAuditOfStrictTag(t *testing.T) {
	t.Parallel()
	g := bustest.Start(t)
	c, ctx := g.Client(), t.Context()
	if _, err := c.CreateTag(ctx, bus.TagCreate{Tag: "invoice", Order: bus.OrderStrict}); err != nil {
		t.Fatal(err)
	}
	if report := g.Audit(t, audit.Options{Tags: []string{"invoice"}}); report.Tags[0].Order != bus.OrderStrict || report.Tags[0].Last != nil {
		t.Errorf("before the first claim: %+v", report.Tags[0])
	}
	var taken audit.Taken
	for _, n := range []int64{1, 5, 1000, 2} {
		ids, err := c.Take(ctx, "invoice", n)
		if err != nil || len(ids) != 1 || ids[0].Len() != n {
			t.Fatalf("%v, %v", ids, err)
		}
		taken.Add("invoice", ids...)
		if n == 1000 {
			if err := g.Restart(); err != nil {
				t.Fatal(err)
			}
		}
	}
	report := g.Audit(t, audit.Options{Taken: &taken})
	a := report.Tags[0]
	if report.Taken.IDs != 1008 || report.Taken.Unreported != 0 || a.Order != bus.OrderStrict || a.Events+a.Lost+a.Unreported > 0 || a.End != 1009 {
		t.Errorf("the report is %+v, with %+v", report, report.Taken)
	}
	if a.Last == nil || a.Last.First != 1007 || a.Last.Last != 1008 {
		t.Errorf("the last claim is %+v", a.Last)
	}
	for id, want := range map[bus.ID]bus.TraceOutcome{1007: bus.Claimed, 1006: bus.NotRecorded, 1: bus.NotRecorded, 1009: bus.NotClaimed} {
		got, err := c.Trace(ctx, bus.TraceRequest{Tag: "invoice", ID: id})
		if err != nil || got.Outcome != want || got.Order != bus.OrderStrict {
			t.Errorf("ID %d: %+v, %v; want %s", id, got, err, want)
		}
	}
	taken.Add("invoice", bus.Range{First: 6, Last: 6}, bus.Range{First: 1009, Last: 1009})
	found := audited(t, g, audit.Options{Taken: &taken})
	if len(found) != 2 || !strings.HasPrefix(found[0], "audit: taken_twice: 6 of invoice") || !strings.HasPrefix(found[1], "audit: taken_unclaimed: 1009 was taken") {
		t.Errorf("%q", found)
	}
	if _, err := c.DeleteTag(ctx, "invoice"); err != nil { // its order and its IDs stay
		t.Fatal(err)
	}
	if a := g.Audit(t, audit.Options{}).Tags; len(a) != 1 || a[0].Order != bus.OrderStrict || a[0].End != 1009 || a[0].MaxID != 0 {
		t.Errorf("of the deleted tag: %+v", a)
	}
}

func TestAuditNamesWhatContradicts(t *testing.T) {
	t.Parallel()
	g := bustest.Start(t, "order")
	ids, err := g.Client().Take(t.Context(), "order", 10)
	if err != nil {
		t.Fatal(err)
	}
	end := ids[0].Last + 1_000_000
	for name, c := range map[string]struct {
		tag  string
		also bus.Range
		want string
	}{
		"twice":       {"order", bus.Range{First: 7, Last: 8}, "audit: taken_twice: 7-8 of order was taken twice"},
		"unclaimed":   {"order", bus.Range{First: end, Last: end}, fmt.Sprintf("audit: taken_unclaimed: %d was taken and never claimed", end)},
		"unknown tag": {"coupon", bus.Range{First: 1, Last: 1}, "audit: taken_unclaimed: 1 was taken and never claimed"},
	} {
		var taken audit.Taken
		taken.Add("order", ids...)
		taken.Add(c.tag, c.also)
		if found := audited(t, g, audit.Options{Taken: &taken}); len(found) != 1 || !strings.HasPrefix(found[0], c.want) {
			t.Errorf("%s: the test fails with %q, want %q", name, found, c.want)
		}
	}
	flake, err := g.Client().Snowflakes(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	week := flake[0].First + 7*24*3600*1000<<22 // later than the generator may issue
	for name, c := range map[string]struct{ id, want string }{
		"snowflake twice":     {fmt.Sprint(flake[0]), fmt.Sprintf("audit: taken_twice: %v was taken twice", flake[0])},
		"snowflake unclaimed": {fmt.Sprint(week), fmt.Sprintf("audit: taken_unclaimed: %d-%d was taken", week, week)},
	} {
		var flakes audit.Runs
		flakes.Add(flake[0])
		if err := flakes.Read(strings.NewReader(c.id)); err != nil {
			t.Fatal(err)
		}
		if found := audited(t, g, audit.Options{TakenSnowflakes: &flakes}); len(found) != 1 || !strings.HasPrefix(found[0], c.want) {
			t.Errorf("%s: the test fails with %q, want %q", name, found, c.want)
		}
	}
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	if found := audited(t, g, audit.Options{}); len(found) != 1 || !strings.Contains(found[0], "the generator is stopped") {
		t.Errorf("with the generator stopped, the test fails with %q", found)
	}
}
