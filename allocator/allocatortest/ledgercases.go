package allocatortest

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

const (
	// poll is the pause between two looks at something that should become true.
	poll = time.Millisecond
	// soon is how long a method may take after its context is done. A call that hangs takes longer.
	soon = 5 * time.Second
)

// sleep waits for d. It reports false when the context is done.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// firstWrite: a tag has no record until one is written; what one handle writes, another reads and
// replaces.
func firstWrite(tb testing.TB, b LedgerBackend) {
	one, other := b.Open(tb), b.Open(tb)
	if e, err := one.Read(within(tb), "order"); err != nil || e != (allocator.Entry{}) {
		tb.Errorf("the record of a tag that has none: %+v, %v", e, err)
	}
	for end := int64(11); end <= 101; end += 10 {
		write(tb, one, "order", end, 0)
		if e := read(tb, other, "order", end); e.Revision == 0 || e.Floor != 0 {
			tb.Errorf("the record of order is %+v, want a revision and no floor", e)
		}
		one, other = other, one
	}
	// What Write returns is the revision for the next one.
	e := read(tb, one, "order", 101)
	for e.End < 200 {
		var err error
		e.End += 10
		if e.Revision, err = one.Write(within(tb), "order", e); err != nil {
			tb.Fatalf("Write with the revision of the last one: %v", err)
		}
		write(tb, other, "user", e.End, 0)
	}
	if now := read(tb, other, "order", e.End); now != e {
		tb.Errorf("the record is %+v; the last write said %+v", now, e)
	}
	if e, err := other.Read(within(tb), "orde"); err != nil || e != (allocator.Entry{}) {
		tb.Errorf("the record of another tag that has none: %+v, %v", e, err)
	}
}

// otherRevision: only a write on the present record is done.
func otherRevision(tb testing.TB, b LedgerBackend) {
	one, other := b.Open(tb), b.Open(tb)
	write(tb, one, "order", 11, 0)
	old := read(tb, one, "order", 11)
	write(tb, one, "user", 500, 0)
	user := read(tb, one, "user", 500)
	write(tb, other, "order", 21, 0)
	now := read(tb, one, "order", 21)
	for _, revision := range []uint64{0, old.Revision, user.Revision, now.Revision - 1, now.Revision + 1, now.Revision + 1000} {
		for _, l := range []allocator.Ledger{one, other} {
			if revision == now.Revision {
				continue
			}
			_, err := l.Write(within(tb), "order", allocator.Entry{End: 901, Revision: revision})
			wantError(tb, fmt.Sprintf("Write with revision %d where it is %d", revision, now.Revision), err, allocator.ErrConflict)
		}
	}
	_, err := one.Write(within(tb), "new", allocator.Entry{End: 901, Revision: now.Revision})
	wantError(tb, "Write with a revision where there is no record", err, allocator.ErrConflict)
	if e := read(tb, other, "order", 21); e != now {
		tb.Errorf("after refused writes the record is %+v, want %+v", e, now)
	}
	if e, err := other.Read(within(tb), "new"); err != nil || e != (allocator.Entry{}) {
		tb.Errorf("after a refused write another tag has the record %+v, %v", e, err)
	}
}

// manyClaims: of handles that claim at once, no two claim the same. What was not claimed for certain did
// not move the end.
func manyClaims(tb testing.TB, b LedgerBackend) {
	const handles, each, size = 8, 25, 10
	var c Checker
	var claimed, lost atomic.Int64
	var wg sync.WaitGroup
	for range handles {
		l, ctx := b.Open(tb), within(tb)
		wg.Go(func() {
			for done := 0; done < each; {
				e, err := l.Read(ctx, "order")
				runtime.Gosched()
				var r allocator.Range
				if err == nil {
					r, err = advance(ctx, l, "order", e, size)
					if !certain(err) {
						lost.Add(1)
					}
				}
				switch {
				case err == nil:
					c.Add(r)
					claimed.Add(1)
					done++
				case ctx.Err() != nil:
					tb.Errorf("claiming: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	wantUnique(tb, &c)
	write(tb, b.Open(tb), "user", 11, 0) // a ledger may hold a write back until the next one
	e, err := b.Open(tb).Read(within(tb), "order")
	least := 1 + claimed.Load()*size
	if most := least + lost.Load()*size; err != nil || e.End < least || e.End > most {
		tb.Errorf("the end is %d, %v; %d claims were made, and %d lost: want %d to %d", e.End, err, claimed.Load(), lost.Load(), least, most)
	}
}

// lateWrites makes writes that end with their context, done or not, and then others that are confirmed. No
// write of the first kind may land on a record of the second.
func lateWrites(tb testing.TB, b LedgerBackend) {
	random := Seed(tb)
	one, other := b.Open(tb), b.Open(tb)
	confirmed := int64(1)
	for range 100 {
		e, err := one.Read(within(tb), "order")
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(1500))*time.Microsecond)
			advance(ctx, one, "order", e, 1)
			cancel()
		}
		for ctx := within(tb); ; {
			e, err = other.Read(ctx, "order")
			if err == nil {
				var r allocator.Range
				r, err = advance(ctx, other, "order", e, 1+random.Int64N(100))
				switch {
				case err == nil && e.End < confirmed && confirmed > 1:
					tb.Fatalf("a record with end %d was replaced, though one with end %d was confirmed before", e.End, confirmed)
				case err == nil:
					confirmed = r.Last + 1
				}
			}
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				tb.Fatalf("claiming: %v", err)
			}
		}
	}
}

// floorIsKept: the floor is as durable as the end.
func floorIsKept(tb testing.TB, b LedgerBackend) {
	one, other := b.Open(tb), b.Open(tb)
	write(tb, one, "order", 5000, 4000)
	e := read(tb, other, "order", 5000)
	if e.Floor != 4000 {
		tb.Errorf("the floor is %d, want 4000", e.Floor)
	}
	if _, err := advance(within(tb), other, "order", e, 10); err != nil {
		tb.Fatalf("claiming: %v", err)
	}
	if e := read(tb, one, "order", 5010); e.Floor != 4000 {
		tb.Errorf("after a claim the floor is %d, want 4000", e.Floor)
	}
	found := int64(0)
	if err := one.Each(within(tb), func(_ string, e allocator.Entry) { found = e.Floor }); err != nil || found != 4000 {
		tb.Errorf("Each: floor %d, %v; want 4000", found, err)
	}
}

func largestEnd(tb testing.TB, b LedgerBackend) {
	l := b.Open(tb)
	for _, end := range []int64{1, 1<<53 + 1, math.MaxInt64 - 1, math.MaxInt64} {
		write(tb, l, "order", end, end)
		if e := read(tb, b.Open(tb), "order", end); e.Floor != end {
			tb.Errorf("the floor is %d, want %d", e.Floor, end)
		}
	}
}

// eachRecord: Each finds every tag, those with similar names too, and what Read returns.
func eachRecord(tb testing.TB, b LedgerBackend) {
	one, other := b.Open(tb), b.Open(tb)
	if err := one.Each(within(tb), func(tag string, e allocator.Entry) { tb.Errorf("Each of no tags: %s, %+v", tag, e) }); err != nil {
		tb.Errorf("Each of no tags: %v", err)
	}
	want := make(map[string]allocator.Entry)
	names := []string{"order", "Order", "ORDER", "order.eu", "order/eu", "order=1", "order-", "_order", "tag", "tag.order"}
	for i := range 100 {
		names = append(names, fmt.Sprint("many.", i))
	}
	for i, name := range names {
		write(tb, one, name, int64(i)+11, int64(i))
		want[name] = read(tb, one, name, int64(i)+11)
	}
	for range 2 {
		found := make(map[string]allocator.Entry)
		if err := other.Each(within(tb), func(tag string, e allocator.Entry) { found[tag] = e }); err != nil {
			tb.Errorf("Each: %v", err)
		}
		if !maps.Equal(found, want) {
			for tag, e := range want {
				if found[tag] != e {
					tb.Errorf("Each: %s has %+v, want %+v", tag, found[tag], e)
				}
			}
			tb.Errorf("Each found %d records, want %d", len(found), len(want))
		}
		for name := range want { // each record is now at another place
			write(tb, one, name, want[name].End+5, 0)
			want[name] = read(tb, one, name, want[name].End+5)
		}
	}
}

// eachWhileWritten: a busy tag does not hide the others.
func eachWhileWritten(tb testing.TB, b LedgerBackend) {
	one, other := b.Open(tb), b.Open(tb)
	const quiet = 30
	for i := range quiet {
		write(tb, one, fmt.Sprint("quiet.", i), 11, 0)
	}
	write(tb, one, "busy", 11, 0)
	ctx, cancel := context.WithCancel(within(tb))
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if e, err := one.Read(ctx, "busy"); err == nil {
				advance(ctx, one, "busy", e, 1)
			}
		}
	})
	for range 5 {
		found := make(map[string]int64)
		if err := other.Each(within(tb), func(tag string, e allocator.Entry) { found[tag] = e.End }); err != nil {
			tb.Errorf("Each: %v", err)
		}
		delete(found, "busy")
		if len(found) != quiet {
			tb.Errorf("beside a tag that is written Each found %d records, want %d", len(found), quiet)
		}
	}
	cancel()
	wg.Wait()
}

// deletedByHand: a record that was deleted by hand is damaged. It is no tag that nobody has claimed yet.
func deletedByHand(tb testing.TB, b LedgerBackend) {
	if b.Delete == nil {
		return
	}
	one, other := b.Open(tb), b.Open(tb)
	write(tb, one, "order", 5000, 0)
	before := read(tb, one, "order", 5000)
	b.Delete(tb, "order")
	for _, l := range []allocator.Ledger{one, other} {
		e, err := l.Read(within(tb), "order")
		wantError(tb, fmt.Sprintf("Read of a deleted record, which returned %+v", e), err, allocator.ErrDamaged)
		for _, revision := range []uint64{0, before.Revision} {
			if _, err := l.Write(within(tb), "order", allocator.Entry{End: 11, Revision: revision}); err == nil {
				tb.Errorf("a deleted record was written with revision %d", revision)
			}
		}
	}
}

// storeBackwards claims what a store offers that is set back again and again.
func storeBackwards(tb testing.TB, b LedgerBackend) {
	random := Seed(tb)
	store := NewMemory()
	create(tb, store, "order", 1, 10)
	backup := store.Snapshot()
	var c Checker
	var wg sync.WaitGroup
	for range 3 {
		claimed := allocator.WithLedger(store, b.Open(tb), allocator.NewMarks(), "")
		ctx, random := within(tb), rand.New(rand.NewPCG(random.Uint64(), 0))
		wg.Go(func() {
			for done := 0; done < 25; {
				if random.IntN(4) == 0 {
					store.Restore(backup)
				}
				g, err := claimed.Reserve(ctx, "order", 1, 0)
				switch {
				case err == nil:
					c.Add(g.Range)
					done++
				case ctx.Err() != nil:
					tb.Errorf("Reserve: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	wantUnique(tb, &c)
}

// ledgerContextDone: no method outlasts its context by much.
func ledgerContextDone(tb testing.TB, b LedgerBackend) {
	l := b.Open(tb)
	write(tb, l, "order", 11, 0)
	e := read(tb, l, "order", 11)
	e.End = 21
	for name, call := range map[string]func(context.Context){
		"Read":  func(ctx context.Context) { l.Read(ctx, "order") },
		"Write": func(ctx context.Context) { l.Write(ctx, "order", e) },
		"Each":  func(ctx context.Context) { l.Each(ctx, func(string, allocator.Entry) {}) },
	} {
		for _, wait := range []time.Duration{0, time.Duration(1 + rand.IntN(500))} {
			ctx, cancel := context.WithTimeout(context.Background(), wait*time.Microsecond)
			begin := time.Now()
			call(ctx)
			if took := time.Since(begin); took > soon {
				tb.Errorf("%s took %v after its context was done", name, took)
			}
			cancel()
		}
	}
}
