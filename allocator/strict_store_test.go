package allocator_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// TestStrictAway: requests wait for MaxWait, then they are refused. The failure is over when the store can be written
// again, also if no request comes; that takes no IDs.
func TestStrictAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStrict(t, 1)
		var r events
		a := startStrict(t, allocator.Config{Records: s, Notify: r.notify})
		s.away()
		err := refused(t, a, 1, allocator.ErrUnavailable, 3*time.Second)
		if !errors.Is(err, errAway) {
			t.Errorf("the error %v does not name the cause", err)
		}
		refused(t, a, 1, allocator.ErrUnavailable, 0)
		r.wantEpisodes(t, "refill_failed", 1, 0)
		r.wantEpisodes(t, "starved", 1, 0)
		time.Sleep(time.Minute)
		r.wantEpisodes(t, "refill_failed", 1, 0)
		s.slow(time.Millisecond) // it can be written
		time.Sleep(time.Second)
		synctest.Wait()
		r.wantEpisodes(t, "refill_failed", 1, 1)
		r.wantEpisodes(t, "starved", 1, 1)
		calls := s.reserves()
		if f := a.Failing(); calls[len(calls)-1].n != 0 || s.maxID() != 11 || f.Tags != 0 {
			t.Errorf("the last claim is %+v, max_id is %d: %+v", calls[len(calls)-1], s.maxID(), f)
		}
		time.Sleep(time.Minute)
		if n := len(s.reserves()); n != len(calls) {
			t.Errorf("%d writes came after the failure was over", n-len(calls))
		}
		wantRanges(t, "afterwards", take(t, a, 1), ids(11, 11))
	})
}

// TestStrictProbeBackwards: a store that went backwards is noticed and moved up also if no request waits.
func TestStrictProbeBackwards(t *testing.T) {
	for name, late := range map[string]bool{"the watch finds it": false, "the probe finds it": true} {
		inBubble(t, name, func(t *testing.T) {
			s := &deafened{store: newStrict(t, 1)}
			var r events
			a := startStrict(t, allocator.Config{Records: s, Notify: r.notify})
			backup := s.Snapshot()
			take(t, a, 1)
			s.away()
			refused(t, a, 1, allocator.ErrUnavailable, 3*time.Second)
			s.deaf.Store(late)
			s.Restore(backup)
			s.back()
			time.Sleep(3 * time.Second)
			if got := published[allocator.Regressed](&r); len(got) != 1 || got[0].Got != 11 || got[0].Seen != 12 || s.maxID() != 12 {
				t.Errorf("the alerts are %+v, max_id is %d", got, s.maxID())
			}
			r.wantEpisodes(t, "regressed", 1, 1)
			r.wantEpisodes(t, "refill_failed", 1, 1)
		})
	}
}

// deafened is a store. While deaf is set, its watch reports nothing.
type deafened struct {
	*store
	deaf atomic.Bool
}

func (u *deafened) Watch(ctx context.Context, f func(allocator.Update)) error {
	return u.store.Watch(ctx, func(update allocator.Update) {
		if !u.deaf.Load() {
			f(update)
		}
	})
}

// TestStrictHangs: an answer that does not come is waited for for 500 ms, the next one for twice as long, up to 4 s.
func TestStrictHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStrict(t, 1)
		a := startStrict(t, allocator.Config{Records: s})
		s.onReserve(func(ctx context.Context, _ string, _ int64) error { <-ctx.Done(); return ctx.Err() })
		begin := time.Now()
		refused(t, a, 1, allocator.ErrUnavailable, 3*time.Second)
		time.Sleep(time.Minute)
		calls := s.reserves()[1:]
		waits := []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second}
		if calls[0].at != begin {
			t.Errorf("the first write came after %v", calls[0].at.Sub(begin))
		}
		for i, wait := range waits {
			if took := calls[i+1].at.Sub(calls[i].at); took < wait || took > wait+time.Second {
				t.Errorf("write %d came %v after the one before, want %v and a pause", i+1, took, wait)
			}
		}
		s.back()
	})
}

// TestStrictExhausted: the last IDs are handed out, and no request is refused whose IDs are there.
func TestStrictExhausted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const first = math.MaxInt64 - 6
		s := newStrict(t, first)
		var r events
		a := start(t, allocator.Config{Records: s, Notify: r.notify})
		wantRanges(t, "the first ID", take(t, a, 1), ids(first, first))
		gate := s.gated()
		zero := request(t, a, 1)
		one, two, three := request(t, a, 2), request(t, a, 3), request(t, a, 2)
		pass(t, gate)
		zero.want(t, ids(first+1, first+1))
		synctest.Wait() // the next write is at the gate
		s.back()
		pass(t, gate)
		one.want(t, ids(first+2, first+3))
		two.refused(t, allocator.ErrExhausted)
		three.want(t, ids(first+4, first+5))
		refused(t, a, 1, allocator.ErrExhausted, 0)
		asked := len(s.reserves())
		refused(t, a, 1, allocator.ErrExhausted, 0)
		wantClaims(t, s, asked) // the store is not asked again
		if f := a.Failing(); f.Tags != 0 || len(published[allocator.RefillFailed](&r)) > 0 {
			t.Errorf("a tag without IDs is a failure: %+v", f)
		}
	})
}

// TestStrictExhaustedMeanwhile: a request is not refused because another one, before or at the same time, wants too
// many IDs.
func TestStrictExhaustedMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const first = math.MaxInt64 - 5
		s := newStrict(t, first)
		a := start(t, allocator.Config{Records: s})
		take(t, a, 1)
		refused(t, a, 9, allocator.ErrExhausted, 0)
		gate := s.gated()
		large := request(t, a, 9)
		small := request(t, a, 2)
		large.leave()
		synctest.Wait()
		s.back()
		pass(t, gate)
		small.want(t, ids(first+1, first+2))
	})
}

// TestStrictBackwards: a store that went backwards is moved up above all IDs that this allocator knows of, its own ones
// included.
func TestStrictBackwards(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStrict(t, 1)
		var r events
		a := startStrict(t, allocator.Config{Records: unwatched{s}, Notify: r.notify})
		backup := s.Snapshot()
		wantRanges(t, "before", take(t, a, 100), ids(11, 110))
		a.EvictIdle()
		s.Restore(backup)
		wantRanges(t, "after an eviction", take(t, a, 1), ids(111, 111))
		s.Restore(backup)
		wantRanges(t, "after", take(t, a, 1), ids(112, 112))
		r.wantEpisodes(t, "regressed", 2, 2)
	})
}

// TestStrictSeenElsewhere: a generator that handed out nothing knows from the watch how far a strict tag was. It
// repeats no ID when the record went backwards, or was removed and made again.
func TestStrictSeenElsewhere(t *testing.T) {
	for _, remade := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			s := newStrict(t, 1)
			backup := s.Snapshot()
			other := start(t, allocator.Config{Records: s.twin()})
			startStrict(t, allocator.Config{Records: s})
			if remade {
				s.Restore(nil)
				s.createTag(strictTag("order"))
			} else {
				s.Restore(backup)
			}
			wantRanges(t, "the other generator", take(t, other, 1), ids(11, 11))
		})
	}
}

// TestStrictStarvedEnds: the alert of a request that was refused after many conflicts ends, also if no other request
// comes. The same holds for the alert of a store that went backwards.
func TestStrictStarvedEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStrict(t, 1)
		var r events
		a := startStrict(t, allocator.Config{Records: unwatched{s}, Notify: r.notify})
		backup := s.Snapshot()
		take(t, a, 1)
		s.Restore(backup)
		conflicts := 0
		s.onReserve(func(context.Context, string, int64) error {
			if conflicts++; conflicts == 1 {
				return &allocator.AdvancedError{Tag: "order", Got: 11, Seen: 12}
			}
			return &allocator.OvertakenError{Tag: "order"}
		})
		refused(t, a, 1, allocator.ErrUnavailable, 3*time.Second)
		s.back()
		time.Sleep(time.Second)
		synctest.Wait()
		r.wantEpisodes(t, "starved", 1, 1)
		r.wantEpisodes(t, "regressed", 1, 1)
		if calls := s.reserves(); calls[len(calls)-1].n != 0 {
			t.Errorf("the last write took %d IDs", calls[len(calls)-1].n)
		}
	})
}
