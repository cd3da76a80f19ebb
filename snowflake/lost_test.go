package snowflake_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/snowflake"
)

// TestWorkerLost: a generator that finds its record gone, or another generator's, stops and takes another worker.
func TestWorkerLost(t *testing.T) {
	type records = map[int64]snowflake.Entry
	lost := func(next string) []string { return []string{"lost 0", next, "recovered: lost"} }
	for name, c := range map[string]struct {
		do     func(w *world, before, running records)
		worker int64 // afterwards
		events []string
	}{
		"wiped":                           {func(w *world, _, _ records) { w.memory.Wipe() }, 0, lost("acquired 0")},
		"another generator's":             {func(w *world, _, _ records) { w.thief(0) }, 1, lost("acquired 1")},
		"restored, from before the start": {func(w *world, before, _ records) { w.memory.Restore(before) }, 1, lost("acquired 1")},
		"restored, from after the start":  {func(w *world, _, running records) { w.memory.Restore(running) }, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				n := w.start()
				before := w.memory.Snapshot()
				n = n.again(n.stop())
				n.run(time.Second)
				running := w.memory.Snapshot()
				n.run(30*time.Second + 100*ms)
				n.wantEvents("acquired 0")
				c.do(w, before, running)
				time.Sleep(3*time.Second + 75*ms) // the step after the report
				synctest.Wait()
				n.issues(c.worker, 0)
				n.wantEvents(c.events...)
				n.run(time.Minute)
				n.wantEvents()
			})
		})
	}
}

// TestWorkerChangesWithinMillisecond: IDs increase also from a higher worker to a lower one.
func TestWorkerChangesWithinMillisecond(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		gone := w.start(as("b"))
		n := w.start(func(s *setup) { s.Clock = w.clock.every(time.Second) })
		gone.kill()
		time.Sleep(2 * time.Minute)
		synctest.Wait() // a report is due at this very moment
		n.take(0)
		w.thief(1)
		go n.Verify(t.Context())
		time.Sleep(100 * ms)
		synctest.Wait()
		n.wantEvents("acquired 1", "lost 1", "acquired 0", "recovered: lost")
		n.take(900 * ms)
	})
}
