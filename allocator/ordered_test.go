package allocator_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// ordered is an installation with a database.
type ordered struct {
	rows, strict *allocatortest.Memory
	ledger       *allocatortest.MemoryLedger
}

func newOrdered() *ordered {
	return &ordered{allocatortest.NewMemory(), allocatortest.NewMemory(), allocatortest.NewMemoryLedger()}
}

// open returns the tags as one generator has them.
func (o *ordered) open(node string) *allocator.Ordered {
	return allocator.NewOrdered(allocator.WithLedger(o.rows, o.ledger, allocator.NewMarks(), node), allocatortest.NewHandle(o.strict, node, nil), o.ledger)
}

// sql makes a row by SQL.
func (o *ordered) sql(tag string) {
	rows := o.rows.Snapshot()
	rows[tag] = allocator.Tag{Name: tag, MaxID: 1, Step: 10}
	o.rows.Restore(rows)
}

func createTag(t *testing.T, s allocator.Store, tag allocator.Tag) {
	t.Helper()
	if _, err := s.Create(t.Context(), tag); err != nil {
		t.Fatalf("Create(%s): %v", tag.Name, err)
	}
}

// TestOrderedShadow: a row with the name of a strict tag is not served, whenever it was made. It is an alert until the row is gone.
func TestOrderedShadow(t *testing.T) {
	for name, watchFirst := range map[string]bool{"the row comes before the watch": false, "the row comes later": true} {
		inBubble(t, name, func(t *testing.T) {
			o := newOrdered()
			s := o.open("one")
			createTag(t, s, strictTag("order"))
			var mu sync.Mutex
			var alerts []bool
			s.OnShadow(func(tag string, shadowed bool) {
				mu.Lock()
				defer mu.Unlock()
				if tag != "order" {
					t.Errorf("%s is shadowed", tag)
				}
				alerts = append(alerts, shadowed)
			})
			want := func(want ...bool) {
				t.Helper()
				time.Sleep(5 * time.Second)
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if len(alerts) != len(want) {
					t.Errorf("the alerts began or ended as %v, want %v", alerts, want)
				}
			}
			row := allocator.Tag{Name: "order", MaxID: 1, Step: 10}
			if !watchFirst {
				createTag(t, o.rows, row)
			}
			a := start(t, allocator.Config{Store: s})
			if watchFirst {
				want()
				createTag(t, o.rows, row)
			}
			want(true)
			text := "changed"
			if _, err := o.rows.Update(t.Context(), "order", allocator.Change{Description: &text}); err != nil {
				t.Fatalf("Update: %v", err)
			}
			want(true)
			wantRanges(t, "the strict tag", take(t, a, 3), ids(1, 3))
			if a.Order("order") != allocator.Strict {
				t.Error("the tag is not known as strict")
			}
			tags, err := s.List(t.Context(), allocator.Query{Limit: 10})
			if err != nil || len(tags) != 1 || tags[0].Order != allocator.Strict || tags[0].MaxID != 4 {
				t.Errorf("List: %+v, %v", tags, err)
			}
			if tag, err := s.Get(t.Context(), "order"); err != nil || tag.Order != allocator.Strict {
				t.Errorf("Get: %+v, %v", tag, err)
			}
			if _, err := o.rows.Delete(t.Context(), "order", 1); err != nil {
				t.Fatalf("Delete: %v", err)
			}
			want(true, false)
			wantRanges(t, "afterwards", take(t, a, 1), ids(4, 4))
		})
	}
}

// TestOrderedShadowUnseen: the alert on a row that was deleted ends, also if the watch on the database never saw the row.
func TestOrderedShadowUnseen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := newOrdered()
		s := o.open("one")
		var shadows atomic.Int64
		s.OnShadow(func(_ string, shadowed bool) {
			if shadowed {
				shadows.Add(1)
			} else {
				shadows.Add(-1)
			}
		})
		start(t, allocator.Config{Store: s})
		synctest.Wait()
		without := o.rows.Snapshot()
		createTag(t, s, strictTag("order"))
		o.sql("order")
		time.Sleep(5 * time.Second)
		if n := shadows.Load(); n != 1 {
			t.Errorf("%d alerts on a row that the watch never saw, want 1", n)
		}
		o.rows.Restore(without)
		time.Sleep(time.Minute)
		if n := shadows.Load(); n != 0 {
			t.Errorf("%d alerts, but the row is gone", n)
		}
	})
}

// slowLedger lets other generators come between a reading and a write.
type slowLedger struct {
	allocator.Ledger
	wait func() time.Duration
}

func (l slowLedger) Read(ctx context.Context, tag string) (allocator.Entry, error) {
	e, err := l.Ledger.Read(ctx, tag)
	time.Sleep(l.wait())
	return e, err
}

func (l slowLedger) Write(ctx context.Context, tag string, e allocator.Entry) (uint64, error) {
	time.Sleep(l.wait())
	return l.Ledger.Write(ctx, tag, e)
}

// TestOrderedRace: several generators create tags of one name in both orders at once. The name has one order, and only the
// store of that order hands out IDs.
func TestOrderedRace(t *testing.T) {
	random := allocatortest.Seed(t)
	var mu sync.Mutex
	wait := func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return 1 + time.Duration(random.Int64N(1000))
	}
	wins := make(map[allocator.Order]int)
	for range 100 {
		bubble(t, func(t *testing.T) {
			o := newOrdered()
			orders := make(chan allocator.Order, 8)
			var doing sync.WaitGroup
			for i := range cap(orders) {
				l := slowLedger{o.ledger, wait}
				s := allocator.NewOrdered(allocator.WithLedger(o.rows, l, allocator.NewMarks(), ""), allocatortest.NewHandle(o.strict, "", nil), l)
				doing.Go(func() {
					time.Sleep(wait())
					tag := strictTag("order")
					if i%2 == 0 {
						tag = allocator.Tag{Name: "order", MaxID: 1, Step: 10}
					}
					_, err := s.Create(t.Context(), tag)
					if err != nil && !errors.Is(err, allocator.ErrConflict) && !errors.Is(err, allocator.ErrExists) {
						t.Errorf("Create: %v", err)
					}
					for err = allocator.ErrConflict; errors.Is(err, allocator.ErrConflict); time.Sleep(wait()) {
						var g allocator.Grant
						if g, err = s.Reserve(t.Context(), "order", 1, 1); err == nil {
							orders <- g.Order
						}
					}
					if err != nil && !errors.Is(err, allocator.ErrUnknownTag) {
						t.Errorf("Reserve: %v", err)
					}
				})
			}
			doing.Wait()
			close(orders)
			order, ok := <-orders
			for other := range orders {
				if other != order {
					t.Errorf("IDs came in %v and in %v order", order, other)
				}
			}
			if ok {
				wins[order]++
			}
			e, _ := o.ledger.Read(t.Context(), "order")
			if _, err := o.strict.Get(t.Context(), "order"); err == nil && e.Order != allocator.Strict {
				t.Errorf("there is a strict tag, and the name has the record %+v", e)
			}
		})
	}
	if wins[allocator.Strict] == 0 || wins[allocator.Trend] == 0 {
		t.Errorf("one order always came first: %v", wins)
	}
}
