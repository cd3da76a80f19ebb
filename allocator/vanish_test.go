package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// vanish removes all records by hand, and reports that.
func vanish(s *store, informed ...*allocator.Allocator) {
	s.Restore(map[string]allocator.Tag{})
	for _, a := range informed {
		a.Apply(allocator.Tag{Name: "order", Deleted: true})
	}
}

// TestVanished: of a tag whose record is gone without a trace nothing is
// handed out, and how far it was is not forgotten.
func TestVanished(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 100)
		a := start(t, allocator.Config{Store: s})
		take(t, a, 10)
		vanish(s, a)
		if _, err := a.Take(t.Context(), "order", 1); !errors.Is(err, allocator.ErrUnknownTag) {
			t.Errorf("Take: %v, want it unknown", err)
		}
		if seen := a.Seen("order"); seen < 101 {
			t.Errorf("Seen is %d; IDs below 101 were reserved", seen)
		}
		s.create("order", 1, 100)
		if r := take(t, a, 1); r[0].First < 101 {
			t.Errorf("created again, it handed out %v", r)
		}
	})
}

// TestStrictVanishedElsewhere: a generator that handed out nothing knows from the watch how far a strict tag was. It repeats no ID
// when the record is gone, or went backwards.
func TestStrictVanishedElsewhere(t *testing.T) {
	for _, gone := range []bool{true, false} {
		inBubble(t, fmt.Sprintf("gone: %v", gone), func(t *testing.T) {
			s := newStrict(t, 1)
			backup := s.Snapshot()
			var r events
			other := start(t, allocator.Config{Store: s.twin(), Notify: r.notify})
			startStrict(t, allocator.Config{Store: s})
			if vanish(s); gone {
				if _, err := s.Create(t.Context(), strictTag("order")); err != nil {
					t.Fatal(err)
				}
			} else {
				s.Restore(backup)
			}
			wantRanges(t, "the other generator", take(t, other, 1), ids(11, 11))
			if got := published[allocator.Regressed](&r); len(got) != 1 || got[0].Got != 1 || got[0].Seen != 11 {
				t.Errorf("the alerts are %+v", got)
			}
		})
	}
}

// TestVanishedUnderBatch: a batch that waits for more is refused, and what it holds is lost.
func TestVanishedUnderBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		var c allocatortest.Checker
		a := start(t, allocator.Config{Store: s, MaxStep: 1})
		c.Add(take(t, a, 1)...)
		gate := s.gated()
		w := queued(t, a, "order", 100)
		synctest.Wait()
		c.Add(take(t, a, 19)...)
		gate <- struct{}{} // 81 of the 100 are put aside
		synctest.Wait()
		vanish(s, a)
		twin := s.twin()
		twin.create("order", 21, 10)
		b := start(t, allocator.Config{Store: twin})
		c.Add(take(t, b, 200)...)
		close(gate)
		synctest.Wait()
		if ranges, err := w.Wait(t.Context()); !errors.Is(err, allocator.ErrUnknownTag) || ranges != nil {
			t.Fatalf("Wait: %v, %v; want the tag unknown", ranges, err)
		}
		c.Add(take(t, a, 100)...)
		if ids := unique(t, &c); ids != 320 {
			t.Errorf("%d IDs were handed out, want 320", ids)
		}
		if waiting := a.Waiting(); waiting != 0 {
			t.Errorf("%d requests wait still", waiting)
		}
	})
}

// TestVanishedAlerts: a refill that was under way when the tag vanished raises no alert that has no end.
func TestVanishedAlerts(t *testing.T) {
	for name, answer := range map[string]error{
		"failed":   errAway,
		"advanced": &allocator.AdvancedError{Tag: "order", Got: 1, Seen: 100},
		"refused":  &allocator.RegressedError{Tag: "order", Got: 1, Seen: 100},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newStore(t, 10)
			var r events
			a := start(t, allocator.Config{Store: s, Notify: r.notify})
			gate, answers := make(chan struct{}), []error{answer}
			s.onReserve(func(context.Context, string, int64) error {
				<-gate
				if len(answers) == 0 {
					return errAway
				}
				err := answers[0]
				answers = nil
				return err
			})
			w := queued(t, a, "order", 1)
			synctest.Wait()
			vanish(s, a)
			close(gate)
			if ranges, err := w.Wait(t.Context()); !errors.Is(err, allocator.ErrUnknownTag) {
				t.Errorf("Wait: %v, %v; want the tag unknown", ranges, err)
			}
			time.Sleep(time.Minute)
			for _, episode := range []string{"refill_failed", "regressed"} {
				r.wantEpisodes(t, episode, 0, 0)
			}
			s.create("order", 1, 10)
			s.back()
			take(t, a, 1)
		})
	}
}

// TestFloorOfATagThatIsNotInMemory: what the store notes of a tag counts also
// for one that was never used here. A record below it went back.
func TestFloorOfATagThatIsNotInMemory(t *testing.T) {
	for name, informed := range map[string]allocator.Tag{
		"a floor":     {Name: "order", MaxID: 1, Step: 10, Floor: 5001},
		"a tombstone": {Name: "order", MaxID: 5001, Deleted: true},
	} {
		inBubble(t, name, func(t *testing.T) {
			a := start(t, allocator.Config{Store: deaf{newShared(t, 10)}}) // at 1
			a.Apply(informed)
			if _, err := a.Take(t.Context(), "order", 1); !errors.Is(err, allocator.ErrRegressed) {
				t.Errorf("Take: %v, want it regressed", err)
			}
		})
	}
}

// TestDamaged: a record that is damaged is answered at once, and is its tag's
// own trouble.
func TestDamaged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		s.onReserve(func(context.Context, string, int64) error {
			return fmt.Errorf("%w: the step is 0", allocator.ErrDamaged)
		})
		a := start(t, allocator.Config{Store: s})
		begin := time.Now()
		_, err := a.Take(t.Context(), "order", 1)
		if !errors.Is(err, allocator.ErrDamaged) || !errors.Is(err, allocator.ErrUnavailable) {
			t.Errorf("Take: %v, want what is damaged", err)
		}
		if waited := time.Since(begin); waited > 0 {
			t.Errorf("Take waited for %v", waited)
		}
		if f := a.Failing(); f.Tags != 1 || f.Dry != nil || f.Store != nil {
			t.Errorf("Failing says %+v; want 1 that is not the store's fault", f)
		}
		s.onReserve(nil)
		take(t, a, 1)
	})
}
