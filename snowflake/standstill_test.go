package snowflake_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leafbus/leafbus/snowflake"
)

// TestStandstill: a generator that stood still for more than a second issues nothing before the registry has
// confirmed the worker, whether a request or its own check notices it first.
func TestStandstill(t *testing.T) {
	const answer = 100 * ms
	for name, c := range map[string]struct {
		still func(c *clock)
		waits bool
	}{
		"for a second":                     {func(c *clock) { c.pass(time.Second) }, false},
		"for longer":                       {func(c *clock) { c.pass(time.Second + ms) }, true},
		"asleep for a second":              {func(c *clock) { c.step(time.Second) }, false},
		"asleep for longer":                {func(c *clock) { c.step(time.Second + ms) }, true},
		"asleep for a day":                 {func(c *clock) { c.step(24 * time.Hour) }, true},
		"the clock was set back and again": {func(c *clock) { c.step(-time.Hour); c.step(time.Hour) }, false},
	} {
		for i := range 4 {
			stolen, asked := i&1 > 0, i&2 > 0
			if stolen && !c.waits {
				continue
			}
			t.Run(fmt.Sprintf("%s, stolen %v, noticed by a request %v", name, stolen, asked), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					n := w.start(func(s *setup) { s.slow = answer })
					time.Sleep(time.Second)
					n.run(3 * time.Second)
					n.wantEvents("acquired 0")
					c.still(w.clock)
					if stolen {
						w.thief(0)
					}
					waits := time.Duration(0)
					if c.waits {
						waits = answer
					}
					if !asked {
						n.LookAlive()
						time.Sleep(50 * ms)
						waits = max(0, waits-50*ms)
						if n.State().Blocked != c.waits {
							t.Errorf("%+v", n.State())
						}
					}
					if stolen {
						n.issues(1, time.Second)
						n.wantEvents("lost 0", "acquired 1", "recovered: lost")
						return
					}
					n.take(waits)
					if n.State().Blocked {
						t.Error("it is still in doubt")
					}
					n.run(10 * time.Second)
				})
			})
		}
	}
}

// TestStandstillAndRegistryAway: another generator may have the worker, so nothing is issued until the registry is
// back, and nothing is written; also by a stop.
func TestStandstillAndRegistryAway(t *testing.T) {
	for _, unconfirmed := range []bool{false, true} { // started from the file alone
		for _, stops := range []bool{false, true} {
			bubble(t, func(t *testing.T, w *world) {
				short := func(s *setup) { s.Grace = time.Second } // so that a stop would lower the reservation
				n := w.start(short)
				n.run(10 * time.Second)
				if unconfirmed {
					n = n.again(n.kill(), down, short)
					time.Sleep(3 * time.Second)
				}
				n.registry.away(true)
				n.run(5 * time.Second)
				w.clock.pass(5 * time.Second)
				if _, _, err := n.try(1); !errors.Is(err, snowflake.ErrNoWorker) || !errors.Is(err, errAway) {
					t.Errorf("Take: %v, want %v because %v", err, snowflake.ErrNoWorker, errAway)
				}
				saved, _ := n.file.Saved()
				record := w.record(0)
				for range 10 {
					n.refused(snowflake.ErrNoWorker)
					if err := n.State().Err; !errors.Is(err, errAway) {
						t.Errorf("the state is %v", err)
					}
					time.Sleep(time.Second)
				}
				if stops {
					n.stop()
					n.refused(snowflake.ErrClosed)
				}
				if now, _ := n.file.Saved(); now != saved || w.record(0) != record {
					t.Errorf("the file says %+v, and said %+v; the record is %+v, and was %+v", now, saved, w.record(0), record)
				}
				if !stops {
					n.registry.away(false)
					time.Sleep(1500 * ms)
					n.run(10 * time.Second)
				}
			})
		}
	}
}

// lateAnswers is a registry that has done what it was asked for long before it answers.
type lateAnswers struct{ *registry }

func (r lateAnswers) Put(ctx context.Context, record snowflake.Record, version uint64) (uint64, error) {
	version, err := r.registry.Put(ctx, record, version)
	time.Sleep(time.Second)
	return version, err
}

// TestStandstillAmidReport: a report that was sent before the standstill proves nothing, though it was answered
// after it.
func TestStandstillAmidReport(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start(func(s *setup) { s.Registry = lateAnswers{s.Registry.(*registry)} })
		time.Sleep(time.Second)
		n.take(0)
		time.Sleep(2500 * ms) // a report is under way
		n.wantEvents("acquired 0")
		w.clock.pass(5 * time.Second)
		w.thief(0)
		n.issues(1, 10*time.Second)
	})
}

// TestNotAlone: a generator ends when another process has written to its file, and leaves that as it is.
func TestNotAlone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		n.run(10 * time.Second)
		saved, _ := n.file.Saved()
		saved.Incarnation, saved.Ceiling = "another", saved.Ceiling+60_000
		save(t, open(t, n.disk), saved)
		select {
		case <-n.ended:
		case <-time.After(time.Minute):
			t.Fatal("it goes on")
		}
		if !errors.Is(n.ran, snowflake.ErrNotAlone) {
			t.Errorf("Run: %v, want %v", n.ran, snowflake.ErrNotAlone)
		}
		n.refused(snowflake.ErrNoWorker)
		n.Close()
		wantSaved(t, open(t, n.disk), saved)
	})
}
