package allocator_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// TestClaim: a range is reserved and claimed with one write. The record is read after 100 ms of rest.
func TestClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClaims(t, 10)
		wantCalls := func(reads, writes int) {
			t.Helper()
			if c.book.reads != reads || c.book.writes != writes {
				t.Errorf("%d readings and %d writes, want %d and %d", c.book.reads, c.book.writes, reads, writes)
			}
		}
		for i := range int64(20) {
			c.want(t, 1+10*i)
			time.Sleep(100 * time.Millisecond)
		}
		wantCalls(1, 20)
		time.Sleep(time.Millisecond)
		c.want(t, 201)
		wantCalls(2, 21)
		c.twin().want(t, 211)
		c.want(t, 221) // the range shows that the record was changed
		wantCalls(3, 22)
		c.store.create("other", 500, 10)
		if g, err := c.Reserve(t.Context(), "other", 1, 1); err != nil || g.First != 500 {
			t.Errorf("another tag: %v, %v", g.Range, err)
		}
		wantCalls(4, 23)
	})
}

// TestClaimRecorded: the record says who claimed a range, and when. What operators do keeps that.
func TestClaimRecorded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClaims(t, 10)
		want := allocator.Claim{}
		for i, node := range []string{"one", "two", "one"} {
			c.Store = allocator.WithLedger(c.store, c.book, c.marks, node)
			time.Sleep(time.Minute)
			first := 1 + 10*int64(i)
			want = allocator.Claim{First: first, Last: first + 9, Node: node, Time: time.Now().UTC().Truncate(time.Millisecond)}
			c.want(t, first)
			if e := c.book.entry("order"); e.Last != want {
				t.Errorf("the record is %+v, want the last claim %+v", e, want)
			}
		}
		to := int64(100)
		if _, err := c.Update(t.Context(), "order", allocator.Change{MaxID: &to}); err != nil {
			t.Fatal(err)
		}
		if e := c.book.entry("order"); e.End != to || e.Last != want {
			t.Errorf("after a new max_id the record is %+v, want the last claim %+v", e, want)
		}
	})
}

// TestClaimUnreadable: a claim that cannot be read is none, and no error.
func TestClaimUnreadable(t *testing.T) {
	for text, want := range map[string]allocator.Claim{
		`{"first":"1","last":"10","node":"one","more":1}`:      {First: 1, Last: 10, Node: "one"},
		`{"first":"1","last":"10","node":"one","time":"noon"}`: {},
		`{"first":"1","last":10}`:                              {},
		`7`:                                                    {},
		`null`:                                                 {},
	} {
		got := allocator.Claim{Node: "before"}
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s reads as %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// TestClaimInTurn: a range above one that another generator is about to claim waits for it, and both are
// claimed. If the other one does not come, it waits for 25 ms.
func TestClaimInTurn(t *testing.T) {
	for name, c := range map[string]struct {
		record       bool          // the tag has one
		first        time.Duration // until the first range is claimed
		second, most time.Duration // until the second is
		lost         bool          // the first is
	}{
		"soon":       {true, 5 * time.Millisecond, 5 * time.Millisecond, 6 * time.Millisecond, false},
		"at last":    {true, 24 * time.Millisecond, 24 * time.Millisecond, 25 * time.Millisecond, false},
		"never":      {true, time.Second, 25 * time.Millisecond, 26 * time.Millisecond, true},
		"new record": {false, 5 * time.Millisecond, 0, 0, true},
	} {
		inBubble(t, name, func(t *testing.T) {
			a := newClaims(t, 10)
			b := a.twin()
			if c.record {
				a.book.raise(1, 0)
			}
			a.store.onReserved(func(string, allocator.Range) error { time.Sleep(c.first); return nil })
			first := make(chan error, 1)
			go func() {
				_, err := a.Reserve(t.Context(), "order", 1, 1)
				first <- err
			}()
			synctest.Wait()
			begin := time.Now()
			b.want(t, 11)
			if took := time.Since(begin); took < c.second || took > c.most {
				t.Errorf("it took %v, want %v to %v", took, c.second, c.most)
			}
			if err := <-first; errors.Is(err, allocator.ErrConflict) != c.lost || err != nil && !c.lost {
				t.Errorf("the first one: %v", err)
			}
			if n := b.book.reads; n > 40 {
				t.Errorf("the record was read %d times", n)
			}
		})
	}
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
		c.store.onReserved(func(string, allocator.Range) error { c.book.raise(21, 9); return nil }) // another floor
		begin := time.Now()
		g, err = c.Reserve(t.Context(), "order", 1, 1)
		if e := c.book.entry("order"); err != nil || g.First != 21 || e.End != 31 || e.Floor != 9 || time.Since(begin) > 10*time.Millisecond {
			t.Errorf("Reserve: %v, %v; the record is %+v after %v", g.Range, err, e, time.Since(begin))
		}
		c.store.onReserved(func(string, allocator.Range) error { c.book.raise(32, 9); return nil }) // the first ID is claimed
		if g, err = c.Reserve(t.Context(), "order", 1, 1); !errors.Is(err, allocator.ErrConflict) {
			t.Errorf("Reserve: %v, %v; 31 was claimed by another", g.Range, err)
		}
	})
}

// TestClaimAgainEnds: a claim that is never written ends with its context.
func TestClaimAgainEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClaims(t, 10)
		writes := 0
		c.book.onWrite(func(string, allocator.Entry) error {
			if writes++; writes > 1000 {
				return errLedger
			}
			return allocator.ErrConflict
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begin := time.Now()
		if g, err := c.Reserve(ctx, "order", 1, 1); err == nil || time.Since(begin) > 5*time.Second {
			t.Errorf("Reserve: %v, %v after %v", g.Range, err, time.Since(begin))
		}
		if writes < 100 || writes > 1000 {
			t.Errorf("%d writes in 5 s", writes) // pauses of up to 50 ms
		}
	})
}

// TestClaimUncertain: the range of a claim that may have been written is lost, and is not claimed again.
func TestClaimUncertain(t *testing.T) {
	for name, late := range map[string]time.Duration{"not written": -1, "written": 0, "written later": 20 * time.Millisecond} {
		inBubble(t, name, func(t *testing.T) {
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
	}
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
		c.Store = allocator.WithLedger(c.store, c.book, c.marks, "")
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
		s := allocator.WithLedger(nonsense{c.store, grant}, c.book, c.marks, "")
		if _, err := s.Reserve(t.Context(), "order", 1, 1); (err == nil) != ok || errors.Is(err, allocator.ErrConflict) {
			t.Errorf("from %d: %v", first, err)
		}
	}
}
