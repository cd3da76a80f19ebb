package snowflake_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// thief makes another the holder of a worker.
func (w *world) thief(worker int64) {
	w.t.Helper()
	e := w.record(worker)
	e.Node, e.Incarnation = "b", "another"
	if _, err := w.memory.Put(w.t.Context(), e.Record, e.Version); err != nil {
		w.t.Fatal(err)
	}
}

// TestStandstill: a generator that stood still for more than a second issues nothing before
// the registry has confirmed the worker, whether a request or its own check notices it first.
func TestStandstill(t *testing.T) {
	const answer = 100 * ms
	for name, c := range map[string]struct {
		still func(c *clock)
		waits time.Duration
	}{
		"for a second":                     {func(c *clock) { c.pass(time.Second) }, 0},
		"for longer":                       {func(c *clock) { c.pass(time.Second + ms) }, answer},
		"asleep for a second":              {func(c *clock) { c.step(time.Second) }, 0},
		"asleep for longer":                {func(c *clock) { c.step(time.Second + ms) }, answer},
		"asleep for a day":                 {func(c *clock) { c.step(24 * time.Hour) }, answer},
		"the clock was set back and again": {func(c *clock) { c.step(-time.Hour); c.step(time.Hour) }, 0},
	} {
		for _, stolen := range []bool{false, true} {
			for _, first := range []string{"a request", "nobody"} {
				t.Run(name+", noticed by "+first, func(t *testing.T) {
					bubble(t, func(t *testing.T, w *world) {
						n := w.start(func(s *setup) { s.slow = answer })
						time.Sleep(time.Second)
						n.run(3 * time.Second)
						n.wantEvents("acquired 0")
						c.still(w.clock)
						if stolen && c.waits > 0 {
							w.thief(0)
						}
						waits := c.waits
						if first == "nobody" {
							n.LookAlive()
							time.Sleep(50 * ms)
							waits = max(0, waits-50*ms)
							if n.State().Doubtful != (waits > 0) {
								t.Errorf("%+v", n.State())
							}
						}
						if !stolen {
							n.take(waits)
							if n.State().Doubtful {
								t.Error("it is still in doubt")
							}
							n.run(10 * time.Second)
							return
						}
						if c.waits == 0 {
							return
						}
						ranges, _, err := n.try(1)
						if err != nil || w.parts(ranges[0].First).Worker == 0 {
							t.Errorf("%v, %v after another took worker 0", ranges, err)
						}
						n.wantEvents("lost 0", "acquired 1", "recovered: lost")
					})
				})
			}
		}
	}
}

// TestStandstillAndRegistryAway: another generator may have the worker, so nothing is
// issued until the registry is back.
func TestStandstillAndRegistryAway(t *testing.T) {
	for name, unconfirmed := range map[string]bool{"running": false, "started from the file alone": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				n := w.start()
				n.run(10 * time.Second)
				if unconfirmed {
					last := n.last
					n = w.start(on(n.kill()), down)
					n.last = last
					time.Sleep(3 * time.Second)
				}
				n.registry.away(true)
				n.run(5 * time.Second)
				w.clock.pass(5 * time.Second)
				if _, _, err := n.try(1); !errors.Is(err, snowflake.ErrNoWorker) || !errors.Is(err, errAway) {
					t.Errorf("Take: %v, want %v because %v", err, snowflake.ErrNoWorker, errAway)
				}
				saved, _ := n.file.Saved()
				for range 10 {
					n.refused(snowflake.ErrNoWorker)
					if err := n.State().Err; !errors.Is(err, errAway) {
						t.Errorf("the state is %v", err)
					}
					time.Sleep(time.Second)
				}
				if now, _ := n.file.Saved(); now != saved {
					t.Errorf("the file says %+v, and said %+v: another may use it", now, saved)
				}
				n.registry.away(false)
				time.Sleep(1500 * ms)
				n.run(10 * time.Second)
			})
		})
	}
}

// lateAnswers is a registry that has done what it was asked for long before it
// answers.
type lateAnswers struct{ *registry }

func (r lateAnswers) Put(ctx context.Context, record snowflake.Record, version uint64) (uint64, error) {
	version, err := r.registry.Put(ctx, record, version)
	time.Sleep(time.Second)
	return version, err
}

// TestStandstillAmidReport: a report that was sent before the standstill proves
// nothing, though it was answered after it.
func TestStandstillAmidReport(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start(func(s *setup) { s.Registry = lateAnswers{s.Registry.(*registry)} })
		time.Sleep(time.Second)
		n.take(0)
		time.Sleep(2500 * ms) // a report is under way
		version := w.record(0).Version
		n.wantEvents("acquired 0")
		w.clock.pass(5 * time.Second)
		w.thief(0)
		if w.record(0).Version != version+1 {
			t.Fatal("the record is not what the test wants")
		}
		ranges, _, err := n.try(1)
		if err != nil || w.parts(ranges[0].First).Worker == 0 {
			t.Errorf("%v, %v after another took worker 0", ranges, err)
		}
	})
}

// TestStandstillAtTheEnd: a generator that stops then returns nothing, and writes nothing.
func TestStandstillAtTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		n.run(10 * time.Second)
		saved, _ := n.file.Saved()
		record := w.record(0)
		n.registry.away(true)
		w.clock.pass(5 * time.Second)
		n.LookAlive()
		n.stop()
		if now, _ := n.file.Saved(); now != saved {
			t.Errorf("the file says %+v, and said %+v", now, saved)
		}
		if now := w.record(0); now != record {
			t.Errorf("the record is %+v, and was %+v", now, record)
		}
		n.refused(snowflake.ErrClosed)
	})
}

// TestNotAlone: a generator ends when another process has written to its file,
// and leaves that as it is.
func TestNotAlone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		n.run(10 * time.Second)
		other := open(t, n.disk)
		saved, _ := other.Saved()
		saved.Incarnation, saved.Ceiling = "another", saved.Ceiling+60_000
		if err := other.Save(saved); err != nil {
			t.Fatal(err)
		}
		<-n.ended
		if !errors.Is(n.ran, snowflake.ErrNotAlone) {
			t.Errorf("Run: %v, want %v", n.ran, snowflake.ErrNotAlone)
		}
		n.refused(snowflake.ErrNoWorker)
		n.Close()
		if now, _ := open(t, n.disk).Saved(); now != saved {
			t.Errorf("the file says %+v, want %+v", now, saved)
		}
	})
}

// TestFileNotAlone: of two that have read the same file one may write.
func TestFileNotAlone(t *testing.T) {
	for _, before := range []int{0, 1, 2, 3} {
		disk := snowflaketest.NewDisk()
		for i := range before {
			save(t, open(t, disk), ceiling(int64(100+i)))
		}
		first, second := open(t, disk), open(t, disk)
		for i := range 3 {
			save(t, first, ceiling(int64(1000+i)))
			if err := second.Save(ceiling(5000)); !errors.Is(err, snowflake.ErrNotAlone) {
				t.Errorf("after %d and %d writes: Save: %v, want %v", before, i, err, snowflake.ErrNotAlone)
			}
		}
		wantSaved(t, open(t, disk), ceiling(1002))
	}
}

// blind is a disk that fails to read one slot, once.
type blind struct {
	snowflake.Disk
	off  int64
	once bool
}

func (d *blind) ReadAt(p []byte, off int64) (int, error) {
	if off == d.off && !d.once {
		d.once = true
		return 0, snowflaketest.ErrDisk
	}
	return d.Disk.ReadAt(p, off)
}

// TestFileUnreadSlot: a slot that could not be read at the start, and can be later, is no other
// process's, whichever of the two it is; and who does write there is still found.
func TestFileUnreadSlot(t *testing.T) {
	for _, off := range []int64{0, slotSize} {
		for before := range 4 {
			disk := snowflaketest.NewDisk()
			f := open(t, disk)
			for i := range 2 + before {
				save(t, f, ceiling(int64(100+i)))
			}
			first := open(t, &blind{Disk: disk, off: off})
			save(t, first, ceiling(5000))
			first = open(t, &blind{Disk: disk, off: off})
			save(t, open(t, disk), ceiling(6000))
			if err := first.Save(ceiling(7000)); !errors.Is(err, snowflake.ErrNotAlone) {
				t.Errorf("after %d writes: %v, want %v", before, err, snowflake.ErrNotAlone)
			}
		}
	}
}

// TestSavedAt: a folder that an older release has written to is the same folder.
func TestSavedAt(t *testing.T) {
	for _, c := range []struct {
		saved, here string
		want        bool
	}{
		{"inode:13 born:5.000000001", "inode:13 born:5.000000001", true},
		{"inode:13", "inode:13 born:5.000000001", true},
		{"inode:13", "inode:13", true},
		{"", "", true},
		{"inode:1", "inode:13 born:5.000000001", false},
		{"inode:13 born:5.000000001", "inode:13 born:5.000000002", false},
		{"inode:13 born:5.000000001", "inode:13", false},
		{"", "inode:13", false},
	} {
		if got := (snowflake.Saved{Place: c.saved}).At(c.here); got != c.want {
			t.Errorf("saved at %q and read at %q: %v, want %v", c.saved, c.here, got, c.want)
		}
	}
}

// TestPlaceOfAnOlderRelease: the generator keeps its worker, and the file says
// from then on where it is.
func TestPlaceOfAnOlderRelease(t *testing.T) {
	const here = "inode:1 born:5.000000001"
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		n.run(time.Minute)
		last := n.last
		n = w.start(on(n.stop()), func(s *setup) { s.Place = here })
		n.last = last
		time.Sleep(ms)
		if got := n.take(0); got.Worker != 0 {
			t.Errorf("worker %d, want 0", got.Worker)
		}
		if s, _ := n.file.Saved(); s.Place != here {
			t.Errorf("the file is at %q, want %q", s.Place, here)
		}
	})
}
