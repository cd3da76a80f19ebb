package kvstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/natskit"
)

var invoice = allocator.Tag{Name: "invoice", MaxID: 1, Order: allocator.Strict}

// namedStore returns a store of a generator with this name.
func namedStore(t *testing.T, s *embedded.Server, node string) *Store {
	t.Helper()
	cfg := newConfig(t, s)
	cfg.Node = node
	store := New(cfg)
	if err := store.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store
}

// reserve claims n IDs, without a conflict.
func reserve(t *testing.T, s *Store, n int64) allocator.Range {
	t.Helper()
	g, err := s.Reserve(t.Context(), "invoice", n, 1)
	if err != nil || g.Order != allocator.Strict || g.Len() != n {
		t.Fatalf("Reserve: %+v, %v; want %d IDs of a strict tag", g, err, n)
	}
	return g.Range
}

// A conflict claims nothing. It names the generator that claimed last by the record as it was known. Then the record is read again.
func TestStrictConflict(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	one, two := namedStore(t, s, "one"), namedStore(t, s, "two")
	if _, err := one.Create(t.Context(), invoice); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"", "one", "two"} {
		two.latest.Forget("invoice") // it would be of the claim before
		switch node {
		case "one":
			reserve(t, one, 5)
		case "two":
			reserve(t, two, 5)
		}
		var read revised
		var err error
		if read.Tag, read.revision, read.exists, err = load(t.Context(), *one.kv.Load(), "invoice"); err != nil {
			t.Fatal(err)
		}
		end := reserve(t, two, 7).Last + 1 // meanwhile
		one.latest.Put("invoice", read, time.Now().Add(time.Hour))
		_, err = one.Reserve(t.Context(), "invoice", 3, 1)
		overtaken, ok := errors.AsType[*allocator.OvertakenError](err)
		if !ok || overtaken.Node != node || overtaken.Tag != "invoice" || !errors.Is(err, allocator.ErrConflict) {
			t.Errorf("%+v; want a conflict with a record of %q", err, node)
		}
		if r := reserve(t, one, 3); r.First != end {
			t.Errorf("after the conflict: %v; want it to begin at %d", r, end)
		}
	}
}

// late reports whether the bound of a read ended a call on a slow machine. A refill repeats such a call.
func late(ctx context.Context, err error) bool {
	return errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
}

// claimStrictly claims IDs of a strict tag from several generators at once, while an operator moves max_id. Each claim that begins
// after another one has ended gets higher IDs.
func claimStrictly(ctx context.Context, t *testing.T, stores []*Store, rounds int) {
	t.Helper()
	if _, err := stores[0].Create(ctx, invoice); err != nil {
		t.Fatal(err)
	}
	var high atomic.Int64 // above all IDs of claims that have ended
	raise := func(to int64) {
		for old := high.Load(); old < to && !high.CompareAndSwap(old, to); old = high.Load() {
		}
	}
	var all allocatortest.Checker
	var callers sync.WaitGroup
	for i, store := range stores {
		callers.Go(func() {
			for n := range rounds {
				above := high.Load()
				g, err := store.Reserve(ctx, "invoice", int64(1+(n+i)%4), 1)
				for errors.Is(err, allocator.ErrConflict) || late(ctx, err) {
					if overtaken, ok := errors.AsType[*allocator.OvertakenError](err); !late(ctx, err) && (!ok || !strings.HasPrefix("node", overtaken.Node)) {
						t.Errorf("%+v", err)
					}
					g, err = store.Reserve(ctx, "invoice", int64(1+(n+i)%4), 1)
				}
				if err != nil || g.Len() != int64(1+(n+i)%4) || g.First < above {
					t.Errorf("%v, %v; want %d IDs from %d on", g.Range, err, 1+(n+i)%4, above)
					return
				}
				all.Add(g.Range)
				raise(g.Last + 1)
			}
		})
	}
	callers.Go(func() {
		for range 5 {
			to := high.Load() + 10_000
			if _, err := stores[0].Update(ctx, "invoice", allocator.Change{MaxID: &to}); err != nil {
				t.Errorf("max_id: %v", err)
			}
			raise(to)
		}
	})
	callers.Wait()
	ids, err := all.Check()
	if err != nil || ids < int64(len(stores)*rounds) {
		t.Errorf("%d IDs: %v", ids, err)
	}
	if high.Load() < 50_000 {
		t.Errorf("the highest ID is below %d: max_id was not moved", high.Load())
	}
}
