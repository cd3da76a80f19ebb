package snowflake_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/snowflake"
)

// stopped checks that the start was refused for a reason in which there are
// these words, that Run has ended, and that all requests hear of the reason.
func (n *node) stopped(words ...string) {
	n.w.t.Helper()
	synctest.Wait()
	select {
	case <-n.ended:
	default:
		n.w.t.Fatalf("it was not refused; the state is %+v", n.State())
	}
	if !errors.Is(n.ran, snowflake.ErrRefused) {
		n.w.t.Fatalf("Run returned %v, want %v", n.ran, snowflake.ErrRefused)
	}
	for _, word := range words {
		if !strings.Contains(n.ran.Error(), word) {
			n.w.t.Errorf("the error does not say %q: %v", word, n.ran)
		}
	}
	for range 2 {
		if err := n.refused(snowflake.ErrNoWorker); !errors.Is(err, snowflake.ErrRefused) {
			n.w.t.Errorf("a request is refused with %v, want %v in it", err, n.ran)
		}
		if s := n.State(); s.Worker != -1 || !errors.Is(s.Err, snowflake.ErrRefused) {
			n.w.t.Errorf("the state is %+v", s)
		}
		time.Sleep(time.Hour) // it stays so
	}
}

// wantSkewed checks that there was one event, and what it says.
func (n *node) wantSkewed(want snowflake.ClockSkewed) {
	n.w.t.Helper()
	if got := fmt.Sprintf("%+v", n.events); got != fmt.Sprintf("%+v", []snowflake.Event{want}) {
		n.w.t.Errorf("the events were %s, want %+v", got, want)
	}
}

// untouched runs start and checks that it has written nothing.
func (w *world) untouched(start func() *node) *node {
	w.t.Helper()
	before := w.memory.Snapshot()
	n := start()
	saved, _ := n.file.Saved()
	fresh, err := snowflake.NewFile(n.disk.Copy())
	if err != nil {
		w.t.Fatal(err)
	}
	if read, _ := fresh.Saved(); read != saved || len(n.registry.written()) > 0 || !maps.Equal(w.memory.Snapshot(), before) {
		w.t.Errorf("it wrote %+v into the registry, and its file says %+v", n.registry.written(), read)
	}
	return n
}

// set sets the wall clock to a time.
func (w *world) set(wall int64) { w.clock.step(time.Duration(wall-w.clock.read().Wall) * ms) }

// TestStartBehind: a start waits for a clock that is a little behind what the
// last run has put on record, in the registry or, where that is away, in the
// file; further behind it is refused.
func TestStartBehind(t *testing.T) {
	for name, c := range map[string]struct {
		behind  time.Duration // of what is on record
		maxWait time.Duration
		refused bool
	}{
		"not at all":          {behind: 0},
		"by 1 ms":             {behind: ms},
		"by 1 s":              {behind: time.Second},
		"by 5 s":              {behind: 5 * time.Second},
		"by more":             {behind: 5*time.Second + ms, refused: true},
		"by an hour":          {behind: time.Hour, refused: true},
		"by what may be":      {behind: 300 * ms, maxWait: 300 * ms},
		"by more than may be": {behind: 301 * ms, maxWait: 300 * ms, refused: true},
		"by 290 years":        {behind: 290 * 365 * 24 * time.Hour, refused: true},
	} {
		for _, killed := range []bool{false, true} {
			for _, away := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, killed %v, the registry away %v", name, killed, away), func(t *testing.T) {
					bubble(t, func(t *testing.T, w *world) {
						n := w.start()
						n.run(10*time.Second + 100*ms)
						n.take(0)
						last := n.last
						end := n.stop
						if killed {
							end = n.kill
						}
						d := end()
						recorded := w.record(0).Reported
						if s, _ := n.file.Saved(); away {
							recorded = s.Ceiling - 6000 // it was less than that ahead
						}
						w.set(recorded)
						w.clock.step(-c.behind)
						now := w.clock.read().Wall
						start := func() *node {
							return w.start(on(d), func(s *setup) { s.down, s.MaxClockWait = away, c.maxWait })
						}
						if c.refused {
							n = w.untouched(start)
							n.wantSkewed(snowflake.ClockSkewed{Now: now, Recorded: recorded, Threshold: cmp.Or(c.maxWait, 5*time.Second)})
							n.stopped(c.behind.Truncate(ms).String(), "--node", time.UnixMilli(now).UTC().Format(snowflake.TimeFormat),
								time.UnixMilli(recorded).UTC().Format(snowflake.TimeFormat))
							if len(n.events) != 1 {
								t.Errorf("the events were %v", n.events)
							}
							return
						}
						if c.behind > 0 {
							n = w.untouched(start)
							n.last = last
							time.Sleep(c.behind - ms)
							synctest.Wait()
							if err := n.refused(snowflake.ErrNoWorker); !errors.Is(err, snowflake.ErrClockBackwards) {
								t.Errorf("the error is %v, want %v in it", err, snowflake.ErrClockBackwards)
							}
							n.wantEvents()
							time.Sleep(2 * ms)
							synctest.Wait()
						} else {
							n = start()
							n.last = last
						}
						if n.Worker() != 0 {
							t.Fatalf("it holds worker %d when the clock has caught up, want 0: %+v", n.Worker(), n.State())
						}
						time.Sleep(7 * time.Second) // it rests
						synctest.Wait()
						n.take(0)
						if away {
							n.wantEvents()
						} else {
							n.wantEvents("acquired 0")
						}
					})
				})
			}
		}
	}
}

// TestStartFarBehind: a clock may be behind by more than a duration can say.
func TestStartFarBehind(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		n.run(time.Second)
		n = w.start(on(n.stop()), func(s *setup) {
			s.Clock = func() snowflake.Reading { r := w.clock.read(); r.Wall -= 1 << 50; return r }
		})
		n.wantEvents("skewed")
		n.stopped("2562047h")
	})
}

// TestStartBehindSaid: the log tells once what is waited for.
func TestStartBehindSaid(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		n.run(10 * time.Second)
		d := n.stop()
		w.clock.step(-4 * time.Second)
		var log bytes.Buffer
		n = w.start(on(d), func(s *setup) { s.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		time.Sleep(4*time.Second + ms)
		synctest.Wait()
		if got := log.String(); strings.Count(got, "until the clock has caught up") != 1 || strings.Count(got, "\n") != 2 {
			t.Errorf("the log is %s", got)
		}
		n.wantEvents("acquired 0")
	})
}

// TestStartAfterCrash: what the last run had of time beyond its clock, and what
// is added when a slot of the file cannot be read, is no clock that is behind.
func TestStartAfterCrash(t *testing.T) {
	for _, away := range []bool{false, true} {
		for slot := range int64(3) { // the third is neither of the two
			t.Run(fmt.Sprintf("slot %d damaged, the registry away %v", slot, away), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					n := w.start()
					n.take(0)
					if s, _ := n.file.Saved(); s.Ceiling != origin+2000 {
						t.Fatalf("the ceiling is %d ms ahead, want as much as it can be", s.Ceiling-origin)
					}
					d, last := n.kill(), n.last
					if _, err := d.WriteAt([]byte("damaged"), slot*4096+100); err != nil {
						t.Fatal(err)
					}
					n = w.start(on(d), func(s *setup) { s.down = away })
					n.last = last
					if n.Worker() != 0 {
						t.Errorf("it holds worker %d, want 0: %+v", n.Worker(), n.State())
					}
					rest := 2000 * ms
					if slot < 2 {
						rest += 4000 * ms
					}
					time.Sleep(rest)
					n.take(0)
				})
			})
		}
	}
}

// TestStartAfterStep: a time that was never believed is not on record.
func TestStartAfterStep(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed %v", killed), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				n := w.start(func(s *setup) {
					s.PeerClocks = w.later(func(context.Context) []time.Duration { return []time.Duration{-time.Hour} })
				})
				n.run(10 * time.Second)
				w.clock.step(time.Hour)
				n.run(10 * time.Second) // it reports
				last, end := n.last, n.stop
				if killed {
					end = n.kill
				}
				d := end()
				w.clock.step(-time.Hour)
				n = w.start(on(d))
				n.last = last
				time.Sleep(2 * time.Second) // it may rest
				n.take(0)
				n.wantEvents("acquired 0")
			})
		})
	}
}

// TestStartUnderAnotherName: a data folder under another name is a new node's,
// which starts with a clock that the old one could not start with.
func TestStartUnderAnotherName(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		n.run(time.Minute)
		d := n.stop()
		w.clock.step(-time.Hour)
		old := w.record(0)
		n = w.start(on(d))
		n.wantEvents("skewed")
		n = w.start(on(n.disk.Kill()), func(s *setup) { s.Node = "b" })
		if got := n.take(0); got.Worker != 1 || got.UnixMS != w.clock.read().Wall {
			t.Errorf("the first ID has %+v, want worker 1 now", got)
		}
		n.wantEvents("acquired 1")
		if e := w.record(0); e != old {
			t.Errorf("the old worker's record is %+v, was %+v", e, old)
		}
		n.run(time.Minute)
	})
}
