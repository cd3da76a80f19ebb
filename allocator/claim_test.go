package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// book is a ledger in memory under instruments. It fails the test when a record moves down.
type book struct {
	*allocatortest.MemoryLedger
	tb testing.TB

	mu            sync.Mutex
	reads, writes int
	unreadable    error                                     // of each Read
	before        func(tag string, e allocator.Entry) error // of each Write
}

var errLedger = errors.New("the ledger is away")

// onRead sets the error of each Read from now on; nil: none.
func (b *book) onRead(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unreadable = err
}

// onWrite sets what happens before each Write from now on; nil: nothing.
func (b *book) onWrite(f func(tag string, e allocator.Entry) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.before = f
}

func (b *book) Read(ctx context.Context, tag string) (allocator.Entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads++
	if b.unreadable != nil {
		return allocator.Entry{}, b.unreadable
	}
	return b.MemoryLedger.Read(ctx, tag)
}

func (b *book) Write(ctx context.Context, tag string, e allocator.Entry) error {
	b.mu.Lock()
	b.writes++
	before := b.before
	b.mu.Unlock()
	if before != nil {
		if err := before(tag, e); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.entry(tag)
	err := b.MemoryLedger.Write(ctx, tag, e)
	if err == nil && (e.End < was.End || e.Floor < was.Floor) {
		b.tb.Errorf("the record was %+v and is %+v", was, e)
	}
	return err
}

func (b *book) entry(tag string) allocator.Entry {
	e, err := b.MemoryLedger.Read(context.Background(), tag)
	if err != nil {
		b.tb.Fatal(err)
	}
	return e
}

// raise moves the record of "order" up, as another generator or an operator does.
func (b *book) raise(end, floor int64) {
	b.tb.Helper()
	if _, err := allocator.Raise(context.Background(), b.MemoryLedger, "order", end, floor); err != nil {
		b.tb.Fatal(err)
	}
}

// claims is a generator's view of a store with a ledger.
type claims struct {
	allocator.Store
	store *store
	book  *book
	marks *allocator.Marks
}

func newClaims(t *testing.T, step int64) claims {
	return joined(newStore(t, step), allocatortest.NewMemoryLedger())
}

// joined is the view of one more generator.
func joined(s *store, l *allocatortest.MemoryLedger) claims {
	c := claims{store: s, book: &book{MemoryLedger: l, tb: s.tb}, marks: allocator.NewMarks()}
	c.Store = allocator.WithLedger(s, c.book, c.marks)
	return c
}

// twin is the view of another generator.
func (c claims) twin() claims { return joined(c.store.twin(), c.book.MemoryLedger) }

func (c claims) config(r *events) allocator.Config {
	return allocator.Config{Store: c, Marks: c.marks, Notify: r.notify}
}

// want reserves 10 IDs of "order", and wants those from first on.
func (c claims) want(t *testing.T, first int64) {
	t.Helper()
	g, err := c.Reserve(t.Context(), "order", 10, c.marks.End("order"))
	if err != nil || g.First != first {
		t.Errorf("Reserve: %v, %v; want a range from %d", g.Range, err, first)
	}
	if e := c.book.entry("order"); e.End != g.Last+1 {
		t.Errorf("the record is %+v, want its end above %v", e, g.Range)
	}
}

// TestClaim: a range is reserved and claimed with one reading and one write.
func TestClaim(t *testing.T) {
	c := newClaims(t, 10)
	c.want(t, 1)
	c.want(t, 11)
	c.twin().want(t, 21)
	if c.book.reads != 2 || c.book.writes != 2 {
		t.Errorf("%d readings and %d writes for 2 ranges", c.book.reads, c.book.writes)
	}
	c.store.create("other", 500, 10)
	if g, err := c.Reserve(t.Context(), "other", 1, 1); err != nil || g.First != 500 {
		t.Errorf("another tag: %v, %v", g.Range, err)
	}
}

// TestClaimTooLate: the range that is claimed after a later one is lost. That is a conflict, not a failure.
func TestClaimTooLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newClaims(t, 10)
		b := a.twin()
		a.store.onReserved(func(_ string, r allocator.Range) error {
			if r.First == 1 {
				b.want(t, 11)
			}
			return nil
		})
		if g, err := a.Reserve(t.Context(), "order", 1, 1); !errors.Is(err, allocator.ErrConflict) {
			t.Errorf("Reserve: %v, %v; want the range lost", g.Range, err)
		}
		var r events
		generator := start(t, a.config(&r))
		a.store.onReserved(func(_ string, r allocator.Range) error {
			if r.First == 21 {
				b.want(t, 31)
			}
			return nil
		})
		wantRanges(t, "Take", take(t, generator, 1), allocator.Range{First: 41, Last: 41})
		for _, episode := range []string{"refill_failed", "regressed", "starved"} {
			r.wantEpisodes(t, episode, 0, 0)
		}
	})
}

// TestClaimAgain: a claim that surely was not written is written again, on the record as it is now.
func TestClaimAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClaims(t, 10)
		c.store.onReserved(func(string, allocator.Range) error { c.book.raise(5, 3); return nil })
		g, err := c.Reserve(t.Context(), "order", 1, 1)
		if !errors.Is(err, allocator.ErrConflict) { // 1-10 begins below 5
			t.Errorf("Reserve: %v, %v", g.Range, err)
		}
		c.store.onReserved(func(string, allocator.Range) error { c.book.raise(11, 7); return nil }) // just below 11-20
		g, err = c.Reserve(t.Context(), "order", 1, 1)
		if e := c.book.entry("order"); err != nil || g.First != 11 || e.End != 21 || e.Floor != 7 {
			t.Errorf("Reserve: %v, %v; the record is %+v", g.Range, err, e)
		}
		c.store.onReserved(func(string, allocator.Range) error { c.book.raise(22, 7); return nil }) // the first ID is claimed
		if g, err = c.Reserve(t.Context(), "order", 1, 1); !errors.Is(err, allocator.ErrConflict) {
			t.Errorf("Reserve: %v, %v; 21 was claimed by another", g.Range, err)
		}
	})
}

// TestClaimAgainEnds: a claim that is never written ends with its context.
func TestClaimAgainEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClaims(t, 10)
		c.book.onWrite(func(string, allocator.Entry) error { return allocator.ErrConflict })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begin := time.Now()
		if g, err := c.Reserve(ctx, "order", 1, 1); err == nil || time.Since(begin) > 5*time.Second {
			t.Errorf("Reserve: %v, %v after %v", g.Range, err, time.Since(begin))
		}
		if n := c.book.writes; n < 100 || n > 1000 {
			t.Errorf("%d writes in 5 s", n) // pauses of up to 50 ms
		}
	})
}

// TestClaimUncertain: the range of a claim that may have been written is lost, and is not claimed again.
func TestClaimUncertain(t *testing.T) {
	for name, late := range map[string]time.Duration{"not written": -1, "written": 0, "written later": 20 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newClaims(t, 10)
				failures := 3
				c.book.onWrite(func(tag string, e allocator.Entry) error {
					if failures--; failures < 0 {
						return nil
					}
					switch {
					case late == 0:
						c.book.MemoryLedger.Write(t.Context(), tag, e)
					case late > 0:
						time.AfterFunc(late, func() { c.book.MemoryLedger.Write(context.Background(), tag, e) })
					}
					return errLedger
				})
				if g, err := c.Reserve(t.Context(), "order", 1, 1); !errors.Is(err, errLedger) || errors.Is(err, allocator.ErrConflict) {
					t.Errorf("Reserve: %v, %v", g.Range, err)
				}
				if c.book.writes != 1 {
					t.Errorf("the claim was sent %d times", c.book.writes)
				}
				var r events
				a := start(t, c.config(&r))
				wantRanges(t, "Take", take(t, a, 1), allocator.Range{First: 31, Last: 31})
				r.wantEpisodes(t, "refill_failed", 1, 1)
				r.wantEpisodes(t, "regressed", 0, 0)
			})
		})
	}
}

// TestLedgerAway: while the ledger is unavailable, nothing is reserved or changed, and what is in memory
// is served.
func TestLedgerAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClaims(t, 10)
		var r events
		a := start(t, c.config(&r))
		take(t, a, 1)
		c.book.onRead(errLedger)
		calls, record := len(c.store.reserves()), c.store.Snapshot()["order"]
		take(t, a, 9)
		err := refused(t, a, 20, allocator.ErrUnavailable, 3*time.Second)
		if !errors.Is(err, errLedger) {
			t.Errorf("Take: %v", err)
		}
		to := int64(5000)
		for what, change := range map[string]func() error{
			"Create": func() error {
				_, err := c.Create(t.Context(), allocator.Tag{Name: "other", MaxID: 1, Step: 1})
				return err
			},
			"Update": func() error { _, err := c.Update(t.Context(), "order", allocator.Change{MaxID: &to}); return err },
			"Delete": func() error { _, err := c.Delete(t.Context(), "order", 1); return err },
			"Get":    func() error { _, err := c.Get(t.Context(), "order"); return err },
		} {
			if err := change(); !errors.Is(err, errLedger) || errors.Is(err, allocator.ErrUncertain) {
				t.Errorf("%s: %v, want that nothing was done", what, err)
			}
		}
		if now := c.store.Snapshot(); len(now) != 1 || now["order"] != record || len(c.store.reserves()) != calls {
			t.Errorf("the store has %+v, and %d ranges were reserved", now, len(c.store.reserves())-calls)
		}
		c.book.onRead(nil)
		time.Sleep(time.Second)
		take(t, a, 20)
		r.wantEpisodes(t, "refill_failed", 1, 1)
	})
}

// TestLedgerDamaged: a record that cannot be read is refused at once. It is its tag's own trouble.
func TestLedgerDamaged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClaims(t, 10)
		c.book.onRead(fmt.Errorf("%w: its end is -5", allocator.ErrDamaged))
		a := start(t, c.config(new(events)))
		refused(t, a, 1, allocator.ErrDamaged, 0)
		if f := a.Failing(); f.Tags != 1 || f.Store != nil || len(c.store.reserves()) > 0 {
			t.Errorf("Failing() = %+v, %d ranges were reserved", f, len(c.store.reserves()))
		}
	})
}

// TestClaimSlow: if the process stood still between reading the record and claiming, the record is read
// again. After a restore of the ledger its revision may mean another record.
func TestClaimSlow(t *testing.T) {
	for d, reads := range map[time.Duration]int{0: 1, time.Second: 1, 1001 * time.Millisecond: 2, time.Minute: 2} {
		t.Run(d.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newClaims(t, 10)
				c.store.onReserved(func(string, allocator.Range) error { time.Sleep(d); return nil })
				c.want(t, 1)
				if c.book.reads != reads {
					t.Errorf("%d readings, want %d", c.book.reads, reads)
				}
			})
		})
	}
	t.Run("restored meanwhile", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := newClaims(t, 10)
			backup := c.book.Snapshot()
			c.want(t, 1) // revision 1
			c.store.onReserved(func(string, allocator.Range) error {
				c.book.Restore(backup)
				c.book.raise(1000, 0) // revision 1 again
				time.Sleep(2 * time.Second)
				return nil
			})
			if g, err := c.Reserve(t.Context(), "order", 1, 1); !errors.Is(err, allocator.ErrConflict) {
				t.Errorf("Reserve: %v, %v; all below 1000 is claimed", g.Range, err)
			}
		})
	})
}

// TestClaimBelowAReport: a range below what a peer reported meanwhile is not claimed, whatever the
// ledger has: the ledger may have gone backwards.
func TestClaimBelowAReport(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClaims(t, 10)
		heard := int64(12)
		c.store.onReserved(func(string, allocator.Range) error { c.marks.Observe("order", heard); return nil })
		g, err := c.Reserve(t.Context(), "order", 1, 1)
		if e := c.book.entry("order"); !errors.Is(err, allocator.ErrConflict) || e.Revision > 0 {
			t.Errorf("Reserve: %v, %v; the record is %+v", g.Range, err, e)
		}
		heard = 11 // just below 11-20
		c.store.onReserved(nil)
		c.marks = allocator.NewMarks()
		c.Store = allocator.WithLedger(c.store, c.book, c.marks)
		c.store.onReserved(func(string, allocator.Range) error { c.marks.Observe("order", heard); return nil })
		c.want(t, 11)
	})
}

// TestClaimBelowTheLedger: a store that returns a range below the ledger's end is not believed.
func TestClaimBelowTheLedger(t *testing.T) {
	for first, ok := range map[int64]bool{51: true, 50: false, 1: false} {
		c := newClaims(t, 10)
		c.book.raise(51, 0)
		grant := allocator.Grant{Range: allocator.Range{First: first, Last: first + 99}, Step: 10}
		s := allocator.WithLedger(nonsense{c.store, grant}, c.book, c.marks)
		if _, err := s.Reserve(t.Context(), "order", 1, 1); (err == nil) != ok || errors.Is(err, allocator.ErrConflict) {
			t.Errorf("from %d: %v", first, err)
		}
	}
}

// TestLedgerRestored: what a generator handed out, and what peers reported, count also if the ledger and
// the store forget it.
func TestLedgerRestored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClaims(t, 10)
		var r events
		a := start(t, c.config(&r))
		store, ledger := c.store.Snapshot(), c.book.Snapshot()
		var ids allocatortest.Checker
		for range 50 {
			ids.Add(take(t, a, 1)...)
		}
		synctest.Wait()
		c.store.Restore(store)
		c.book.Restore(ledger)
		for range 500 {
			ids.Add(take(t, a, 1)...)
		}
		unique(t, &ids)
		r.wantEpisodes(t, "regressed", 1, 1)
		if e := c.book.entry("order"); e.End != c.store.maxID() {
			t.Errorf("the record is %+v, max_id %d", e, c.store.maxID())
		}
	})
}
