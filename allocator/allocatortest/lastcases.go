package allocatortest

import (
	"math"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// lastIsKept: the last claim of a tag comes back as it was written, and is kept by all that claims no range.
func lastIsKept(tb testing.TB, b LedgerBackend) {
	one, other := b.Open(tb), b.Open(tb)
	const high = math.MaxInt64 - 2
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	for _, want := range []allocator.Claim{
		{First: 1, Last: 1000, Node: "A_node-1.eu", Time: at},
		{First: high, Last: high, Node: "b", Time: at.Add(time.Millisecond)},
	} {
		e, err := one.Read(within(tb), "order")
		if err != nil {
			tb.Fatalf("Read: %v", err)
		}
		e.End, e.Last = want.Last+1, want
		if _, err := one.Write(within(tb), "order", e); err != nil {
			tb.Fatalf("Write: %v", err)
		}
		if e := read(tb, other, "order", want.Last+1); e.Last != want {
			tb.Errorf("the last claim is %+v; %+v was written", e.Last, want)
		}
		if _, err := allocator.Raise(within(tb), other, "order", want.Last+2, want.Last+1); err != nil {
			tb.Fatalf("Raise: %v", err)
		}
		if e := read(tb, one, "order", want.Last+2); e.Last != want || e.Floor != want.Last+1 {
			tb.Errorf("after the end was raised the record is %+v, want the last claim %+v", e, want)
		}
		found := allocator.Claim{}
		if err := one.Each(within(tb), func(_ string, e allocator.Entry) { found = e.Last }); err != nil || found != want {
			tb.Errorf("Each: %+v, %v; want %+v", found, err, want)
		}
	}
	if _, err := allocator.Raise(within(tb), one, "new", 11, 0); err != nil {
		tb.Fatalf("Raise: %v", err)
	}
	if e := read(tb, other, "new", 11); e.Last != (allocator.Claim{}) {
		tb.Errorf("a record that nobody claimed a range in has the last claim %+v", e.Last)
	}
}

// lastClaim: a range that is claimed through [allocator.WithLedger] is recorded with the generator and the time. What operators
// do keeps that.
func lastClaim(tb testing.TB, b LedgerBackend) {
	store, l := NewMemory(), b.Open(tb)
	generators := make(map[string]allocator.Store)
	for _, node := range []string{"one", "two"} {
		generators[node] = allocator.WithLedger(store, b.Open(tb), allocator.NewMarks(), node)
	}
	create(tb, generators["one"], "order", 1, 10)
	if e := read(tb, l, "order", 1); e.Last != (allocator.Claim{}) {
		tb.Errorf("the record of a new tag has the last claim %+v", e.Last)
	}
	var last allocator.Claim
	for _, node := range []string{"one", "two", "two", "one"} {
		before := allocator.Now()
		g := reserve(tb, generators[node], "order", 10)
		e := read(tb, l, "order", g.Last+1)
		last = e.Last
		if last.First != g.First || last.Last != g.Last || last.Node != node || last.Time.Before(before) || last.Time.After(time.Now()) {
			tb.Errorf("%s claimed %v after %v, and the record is %+v", node, g.Range, before, e)
		}
	}
	wantLast := func(what string, end int64) {
		tb.Helper()
		if e := read(tb, l, "order", end); e.Last != last {
			tb.Errorf("after %s the last claim is %+v, want %+v", what, e.Last, last)
		}
	}
	to, step := int64(1000), int64(20)
	if _, err := generators["two"].Update(within(tb), "order", allocator.Change{MaxID: &to, Step: &step}); err != nil {
		tb.Fatalf("Update: %v", err)
	}
	wantLast("a new max_id", 1000)
	if _, err := generators["two"].Delete(within(tb), "order", 2000); err != nil {
		tb.Fatalf("Delete: %v", err)
	}
	wantLast("a deletion", 2000)
	create(tb, generators["two"], "order", 3000, 10)
	wantLast("a creation", 3000)
}
