package allocator_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// TestEvict: a tag that was not used for two days leaves memory, and the next request
// loads it again; one that is used stays, and so does its step.
func TestEvict(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10, "idle")
		a := start(t, allocator.Config{Records: s})
		var c allocatortest.Checker
		takeIdle := func() { c.Add(takeOf(t, a, "idle", 1)...) }
		takeIdle()
		take(t, a, 1000)
		for range 60 { // used, though seldom
			time.Sleep(time.Hour)
			synctest.Wait()
			take(t, a, 1)
		}
		views := a.Views(allocator.Query{Limit: 10})
		if len(views) != 1 || views[0].Tag != "order" || views[0].Taken != 1060 {
			t.Errorf("in memory is %+v, want order, which is used", views)
		}
		takeIdle()
		if unique(t, &c) != 2 {
			t.Errorf("2 IDs of the evicted tag were to come")
		}
		time.Sleep(23 * time.Hour)
		takeIdle()
		time.Sleep(23 * time.Hour)
		if v := a.Views(allocator.Query{Limit: 10}); len(v) != 1 || v[0].Tag != "idle" || v[0].Taken != 2 {
			t.Errorf("in memory is %+v, want the tag that was used 23 hours ago", v)
		}
		unique(t, &c)
	})
}

// TestEvictKeepsTheFloor: how far a strict tag is, which only the buffer knew because the watch was blind,
// is a mark when the buffer is gone.
func TestEvictKeepsTheFloor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStrict(t, 1)
		backup := s.Snapshot()
		a := startStrict(t, allocator.Config{Records: unwatched{s}})
		time.Sleep(51 * time.Hour)
		if seen := a.Seen("order"); a.Tags() != 0 || seen != 11 {
			t.Errorf("%d tags are in memory, and all below %d seem in use", a.Tags(), seen)
		}
		s.Restore(backup)
		wantRanges(t, "from a record that was set back", take(t, a, 1), ids(11, 11))
	})
}

// TestEvictWaits: a tag whose refills fail stays, with the IDs that it has, until the
// store is back; and the episode ends with it.
func TestEvictWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		var r events
		a := start(t, allocator.Config{Records: s, Notify: r.notify})
		take(t, a, 5) // now there are two segments
		s.away()
		take(t, a, 10)
		time.Sleep(55 * time.Hour) // more than two days
		if n := left(a); n != 5 {
			t.Errorf("%d IDs are left while the store is away, want 5", n)
		}
		s.back()
		time.Sleep(50 * time.Hour)
		if n := a.Tags(); n != 0 {
			t.Errorf("%d tags are in memory", n)
		}
		r.wantEpisodes(t, "refill_failed", 1, 1)
	})
}
