package snowflake_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

var errAway = errors.New("the registry is away")

// registry is one process's handle on a registry, with faults, which keeps
// what it was asked to write.
type registry struct {
	snowflake.Registry

	mu     sync.Mutex
	delay  time.Duration
	fault  func(ctx context.Context, call string) snowflaketest.Fault // of "List", "Add", "Put"; nil: none
	writes []snowflake.Record
	old    []snowflake.Entry // what List returns, if it is old
}

// age lets List return this from now on; nil: what is there.
func (r *registry) age(list []snowflake.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.old = list
}

func (r *registry) set(fault func(ctx context.Context, call string) snowflaketest.Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = fault
}

// slow lets each call take so long.
func (r *registry) slow(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = d
}

func (r *registry) away(is bool) {
	if !is {
		r.set(nil)
		return
	}
	r.set(func(context.Context, string) snowflaketest.Fault { return snowflaketest.NotDone })
}

// hang lets no call return before its context is done.
func (r *registry) hang() {
	r.set(func(ctx context.Context, _ string) snowflaketest.Fault {
		<-ctx.Done()
		return snowflaketest.NotDone
	})
}

// written returns what the registry was asked to write so far.
func (r *registry) written() []snowflake.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]snowflake.Record(nil), r.writes...)
}

func (r *registry) next(ctx context.Context, call string, writes ...snowflake.Record) snowflaketest.Fault {
	r.mu.Lock()
	r.writes = append(r.writes, writes...)
	fault, delay := r.fault, r.delay
	r.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return snowflaketest.NotDone
	}
	if fault == nil {
		return snowflaketest.None
	}
	return fault(ctx, call)
}

func (r *registry) List(ctx context.Context) ([]snowflake.Entry, error) {
	if r.next(ctx, "List") != snowflaketest.None {
		return nil, errAway
	}
	r.mu.Lock()
	old := r.old
	r.mu.Unlock()
	if old != nil {
		return old, nil
	}
	return r.Registry.List(ctx)
}

func (r *registry) Add(ctx context.Context, record snowflake.Record, c snowflake.Choice) (e snowflake.Entry, err error) {
	fault := r.next(ctx, "Add", record)
	if fault != snowflaketest.NotDone {
		e, err = r.Registry.Add(ctx, record, c)
	}
	if fault != snowflaketest.None {
		return snowflake.Entry{}, errAway
	}
	return e, err
}

func (r *registry) Put(ctx context.Context, record snowflake.Record, version uint64) (v uint64, err error) {
	fault := r.next(ctx, "Put", record)
	if fault != snowflaketest.NotDone {
		v, err = r.Registry.Put(ctx, record, version)
	}
	if fault != snowflaketest.None {
		return 0, errAway
	}
	return v, err
}

// as makes the generator of a setup another node, in a folder of its own.
func as(node string) func(*setup) {
	return func(s *setup) { s.Node, s.Place = node, "inode of "+node }
}

// on makes a setup's generator find a disk.
func on(d *snowflaketest.Disk) func(*setup) { return func(s *setup) { s.disk = d } }

func down(s *setup) { s.down = true }

// run takes an ID every now and then, and sees that the generator can.
func (n *node) run(d time.Duration) {
	n.w.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(time.Second, time.Until(end)))
		synctest.Wait()
		n.take(0)
		if err := n.State().Err; err != nil {
			n.w.t.Fatalf("the state is %v", err)
		}
	}
}

// record returns the registry's record of a worker.
func (w *world) record(worker int64) snowflake.Entry {
	w.t.Helper()
	e, ok := w.memory.Snapshot()[worker]
	if !ok {
		w.t.Fatalf("there is no record of worker %d", worker)
	}
	return e
}

func TestFirstStart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start(func(s *setup) { s.FirstWorker, s.LastWorker = 5, 6 })
		if got := n.take(0); got.Worker != 5 || got.UnixMS != origin {
			t.Errorf("the first ID has %+v, want worker 5 now", got)
		}
		n.wantTold("acquired 5")
		until := origin + time.Minute.Milliseconds()
		if s := n.State(); s != (snowflake.State{Worker: 5, ReservedUntil: until}) || n.Worker() != 5 {
			t.Errorf("the state is %+v", s)
		}
		e := w.record(5)
		if e.Incarnation == "" {
			t.Error("the record has no incarnation")
		}
		want := snowflake.Record{Worker: 5, Node: "a", Incarnation: e.Incarnation, ReservedUntil: until, Acquired: origin, Reported: origin}
		if e.Record != want {
			t.Errorf("the record is %+v, want %+v", e.Record, want)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		want.ReservedUntil, want.Reported = until+3000, origin+3000
		if e := w.record(5); e.Record != want {
			t.Errorf("reported was %+v, want %+v", e.Record, want)
		}
	})
}

// TestRestart: the same generator goes on with its worker soon, and never where
// it has been.
func TestRestart(t *testing.T) {
	const run, grace = 40*time.Second + 100*ms, 30 * time.Second
	for name, c := range map[string]struct {
		killed bool
		pause  time.Duration
		down   bool          // the registry, at the restart
		rest   time.Duration // at most
		err    error         // instead
	}{
		"at once":                               {rest: ms},
		"after a while":                         {pause: 3 * time.Second},
		"at once, the registry away":            {rest: ms, down: true},
		"within the grace, the registry away":   {pause: grace - 11*time.Second, down: true},
		"after the grace, the registry away":    {pause: grace + ms, down: true, err: snowflake.ErrNoWorker},
		"after the grace":                       {pause: 20 * time.Minute},
		"killed, at once":                       {killed: true, rest: 2 * time.Second},
		"killed, within 3 s":                    {killed: true, pause: 2 * time.Second},
		"killed, at once, the registry away":    {killed: true, rest: 2 * time.Second, down: true},
		"killed, within 3 s, the registry away": {killed: true, pause: 2 * time.Second, down: true},
		"killed, reserved, the registry away":   {killed: true, pause: 45 * time.Second, down: true},
		"killed, not reserved, registry away":   {killed: true, pause: time.Minute, down: true, err: snowflake.ErrNoWorker},
		"killed, not reserved, taken by nobody": {killed: true, pause: 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				n := w.start(func(s *setup) { s.Grace = grace })
				n.run(run)
				n.wantTold("acquired 0")
				last := n.last
				end := n.stop
				if c.killed {
					end = n.kill
				}
				d := end()
				time.Sleep(c.pause)
				n = w.start(on(d), func(s *setup) { s.down = c.down })
				if c.err != nil {
					n.refused(c.err)
					if got := n.Worker(); got != -1 {
						t.Errorf("it holds worker %d", got)
					}
					return
				}
				n.last = last
				if err := n.State().Err; c.rest > ms && !errors.Is(err, snowflake.ErrNoWorker) {
					t.Errorf("the state is %v while it rests", err)
				}
				ranges, took, err := n.try(1)
				if err != nil || took > c.rest || w.parts(ranges[0].First).Worker != 0 {
					t.Errorf("after the restart: %v, %v after %v; want one of worker 0 within %v", ranges, err, took, c.rest)
				}
				n.run(4 * time.Second)
				if c.down {
					n.wantTold()
					n.registry.away(false)
					n.run(10 * time.Second)
				}
				n.wantTold("acquired 0")
			})
		})
	}
}

// TestRestartKeepsReservation: what was reserved when the generator crashed
// is still, though one that has just started reserves little.
func TestRestartKeepsReservation(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		n.run(2 * time.Minute)
		until, last := n.State().ReservedUntil, n.last
		n = w.start(on(n.kill()))
		n.last = last
		if got := n.State().ReservedUntil; got != until || got != w.record(0).ReservedUntil {
			t.Errorf("it is reserved until %d, in the registry %d; want %d", got, w.record(0).ReservedUntil, until)
		}
	})
}

// TestRestartAgainAndAgain: a generator that crashes in a loop keeps its one
// worker, whether the registry is there or not.
func TestRestartAgainAndAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		random := allocatortest.Seed(t)
		n := w.start()
		n.run(30 * time.Second)
		for range 100 {
			last, d := n.last, n.kill()
			n = w.start(on(d), func(s *setup) { s.down = random.IntN(2) == 0 })
			n.last = last
			// Before, while and after it rests.
			time.Sleep(time.Duration(random.Int64N(5)) * time.Second / 2)
			if ranges, took, err := n.try(1); err != nil || took > 2*time.Second {
				t.Fatalf("%v, %v after %v", ranges, err, took)
			}
			n.registry.away(false)
			time.Sleep(2 * time.Second)
		}
		if all := w.memory.Snapshot(); len(all) != 1 {
			t.Errorf("it used %d workers: %v", len(all), all)
		}
	})
}

// TestStartWithoutRegistry: a new generator cannot issue anything, and says why.
// It starts by itself.
func TestStartWithoutRegistry(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start(down)
		for range 20 {
			n.refused(snowflake.ErrNoWorker)
			if err := n.State().Err; !errors.Is(err, snowflake.ErrNoWorker) || !errors.Is(err, errAway) {
				t.Errorf("the state is %v, want %v because %v", err, snowflake.ErrNoWorker, errAway)
			}
			time.Sleep(time.Second)
		}
		n.wantTold()
		n.registry.away(false)
		time.Sleep(1500 * ms)
		n.take(0)
		n.wantTold("acquired 0")
	})
}

// TestRegistryAway: what is reserved is used up; half-way there is an alert.
func TestRegistryAway(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		n.run(10 * time.Minute)
		n.wantTold("acquired 0")
		until := n.State().ReservedUntil
		n.registry.away(true)
		n.run(5*time.Minute - 4*time.Second)
		n.wantTold()
		n.run(4 * time.Second)
		n.wantTold("expiring 0")
		left := time.Duration(until-w.clock.right()) * ms
		n.run(left - ms)
		n.wantTold()
		time.Sleep(ms)
		for range 10 {
			n.refused(snowflake.ErrNoWorker)
			if s := n.State(); !errors.Is(s.Err, snowflake.ErrNoWorker) || s.Worker != 0 || s.ReservedUntil != until {
				t.Errorf("the state is %+v", s)
			}
			time.Sleep(10 * time.Second)
		}
		n.registry.away(false)
		time.Sleep(1500 * ms)
		n.take(0)
		n.run(10 * time.Minute)
		n.wantTold("recovered: expiring")
	})
}

// TestRegistryHangs: nobody waits for a registry that does not answer, and the
// end waits for it only so long.
func TestRegistryHangs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		n.run(10 * time.Second)
		n.registry.hang()
		n.run(30 * time.Second)
		begin := time.Now()
		d := n.stop()
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("the end took %v", took)
		}
		n.wantTold("acquired 0", "expiring 0")
		n = w.start(on(d), func(s *setup) { s.Registry.(*registry).hang() })
		n.wait(t.Context(), n.request(1), nil, 1500*time.Millisecond) // for an answer; then the file's word counts
	})
}

// TestReservation: how far ahead is reserved grows with the time since the
// start.
func TestReservation(t *testing.T) {
	for _, c := range []struct{ uptime, reserve, want time.Duration }{
		{0, 0, time.Minute},
		{30 * time.Second, 0, time.Minute},
		{2 * time.Minute, 0, 2 * time.Minute},
		{time.Hour, 0, time.Hour},
		{time.Hour, 30 * time.Minute, 30 * time.Minute},
		{25 * time.Hour, 0, 24 * time.Hour},
		{0, 10 * time.Second, 10 * time.Second},
		{time.Minute, 10 * time.Second, 10 * time.Second},
		{time.Minute, snowflake.LeastReserve, snowflake.LeastReserve},
	} {
		bubble(t, func(t *testing.T, w *world) {
			n := w.start(func(s *setup) { s.Reserve = c.reserve })
			w.clock.pass(c.uptime)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			ahead := time.Duration(n.State().ReservedUntil-w.clock.right()) * ms
			if ahead > c.want+3*time.Second || ahead < c.want-min(3*time.Second, c.want/2) {
				t.Errorf("after %v of at most %v, %v is reserved, want about %v", c.uptime, c.reserve, ahead, c.want)
			}
			n.run(5 * time.Second)
		})
	}
}

// TestWorkerLost: who finds its record gone or another's stops, and takes
// another worker.
func TestWorkerLost(t *testing.T) {
	foreign := func(w *world) {
		e := w.record(0)
		e.Node, e.Incarnation = "b", "another"
		if _, err := w.memory.Put(w.t.Context(), e.Record, e.Version); err != nil {
			w.t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		do     func(w *world, before, running map[int64]snowflake.Entry)
		worker int64 // afterwards
		told   []string
	}{
		"wiped": {
			func(w *world, _, _ map[int64]snowflake.Entry) { w.memory.Wipe() }, 0,
			[]string{"lost 0", "acquired 0", "recovered: lost"},
		},
		"another's": {
			func(w *world, _, _ map[int64]snowflake.Entry) { foreign(w) }, 1,
			[]string{"lost 0", "acquired 1", "recovered: lost"},
		},
		"restored, from before the start": {
			func(w *world, before, _ map[int64]snowflake.Entry) { w.memory.Restore(before) }, 1,
			[]string{"lost 0", "acquired 1", "recovered: lost"},
		},
		"restored, from after the start": {
			func(w *world, _, running map[int64]snowflake.Entry) { w.memory.Restore(running) }, 0, nil,
		},
	} {
		for _, verify := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, verify %v", name, verify), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					n := w.start()
					before := w.memory.Snapshot()
					last := n.last
					n = w.start(on(n.stop()))
					n.last = last
					n.run(time.Second)
					running := w.memory.Snapshot()
					n.run(30*time.Second + 100*ms)
					n.wantTold("acquired 0")
					c.do(w, before, running)
					if verify {
						go n.Verify(t.Context())
					} else {
						time.Sleep(3 * time.Second)
					}
					time.Sleep(75 * ms) // the step after it
					synctest.Wait()
					if got := n.take(0); got.Worker != c.worker {
						t.Errorf("worker %d issues, want %d", got.Worker, c.worker)
					}
					n.wantTold(c.told...)
					n.run(time.Minute)
					n.wantTold()
					if got := w.record(c.worker); got.Node != "a" {
						t.Errorf("the record is %+v", got)
					}
				})
			})
		}
	}
}

// TestLostAndNoOther: without a worker nothing is issued, until there is one
// again.
func TestLostAndNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start(func(s *setup) { s.LastWorker = 0 })
		n.run(time.Second)
		e := w.record(0)
		e.Node, e.Incarnation, e.ReservedUntil = "b", "another", w.clock.right()+time.Minute.Milliseconds()
		if _, err := w.memory.Put(t.Context(), e.Record, e.Version); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		n.refused(snowflake.ErrNoWorker)
		if s := n.State(); s.Worker != -1 || n.Worker() != -1 || !errors.Is(s.Err, snowflake.ErrNoWorker) {
			t.Errorf("the state is %+v", s)
		}
		n.wantTold("acquired 0", "lost 0")
		time.Sleep(time.Minute + 1500*ms)
		if got := n.take(0); got.UnixMS < e.ReservedUntil {
			t.Errorf("it begins %d ms before the other's end", e.ReservedUntil-got.UnixMS)
		}
		n.wantTold("acquired 0", "recovered: lost")
	})
}

// TestAllTaken: the error names who has the workers. One whose reservation is
// over is taken over, from there on.
func TestAllTaken(t *testing.T) {
	for _, workers := range []int64{1, 2, 20} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				few := func(s *setup) { s.LastWorker = workers - 1 }
				var others []*node
				for i := range workers {
					others = append(others, w.start(as(fmt.Sprint("host-", i)), few))
				}
				n := w.start(few)
				time.Sleep(time.Second)
				err := n.refused(snowflake.ErrNoWorker)
				for i := range min(workers, 8) {
					if text := fmt.Sprintf("%d by host-%d until 2026-01-01T00:01:0", i, i); !strings.Contains(err.Error(), text) {
						t.Errorf("the error is %q, without %q", err, text)
					}
				}
				if got := strings.Count(err.Error(), "host-"); got > 8 {
					t.Errorf("the error names %d holders: %q", got, err)
				}
				time.Sleep(70 * time.Second)
				n.refused(snowflake.ErrNoWorker)
				n.wantTold()

				gone := others[workers/2]
				gone.take(0)
				gone.kill()
				until := w.record(workers / 2).ReservedUntil
				time.Sleep(time.Duration(until-w.clock.right())*ms - ms)
				n.refused(snowflake.ErrNoWorker)
				time.Sleep(1500 * ms)
				if got := n.take(0); got.Worker != workers/2 || got.UnixMS < until {
					t.Errorf("it begins with %+v, want worker %d from %d on", got, workers/2, until)
				}
				n.wantTold(fmt.Sprint("acquired ", workers/2))
				if got := w.record(workers / 2); got.Node != "a" || got.Acquired < until {
					t.Errorf("the record is %+v", got)
				}
			})
		})
	}
}

// TestTakeoverWithClockBehind: whoever takes a worker over issues nothing from
// before the end of its reservation, though its clock is set back at once.
func TestTakeoverWithClockBehind(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one := func(s *setup) { s.LastWorker = 0 }
		gone := w.start(as("b"), one)
		gone.run(20 * time.Second)
		gone.kill()
		until := w.record(0).ReservedUntil
		time.Sleep(time.Minute)
		n := w.start(one)
		w.clock.step(-time.Minute)
		n.refused(snowflake.ErrClockBackwards)
		time.Sleep(time.Minute + ms)
		if got := n.take(0); got.UnixMS < until {
			t.Errorf("it begins %d ms before the end of the other's", until-got.UnixMS)
		}
	})
}

// TestStartTogether: generators that start at once get workers of their own,
// new ones and those that others left.
func TestStartTogether(t *testing.T) {
	for _, left := range []int64{0, 4, 8} {
		bubble(t, func(t *testing.T, w *world) {
			for i := range left {
				w.start(as(fmt.Sprint("old-", i))).kill()
			}
			time.Sleep(2 * time.Minute)
			var nodes []*node
			for i := range 8 {
				nodes = append(nodes, w.start(as(fmt.Sprint("new-", i)), func(s *setup) { s.slow = 10 * ms }))
			}
			var first []<-chan time.Duration
			for _, n := range nodes {
				first = append(first, n.batch(1)) // who is second waits, and is not refused
			}
			for _, f := range first {
				<-f
			}
			workers := make(map[int64]bool)
			for _, n := range nodes {
				workers[n.Worker()] = true
			}
			if len(workers) != 8 {
				t.Errorf("8 generators have %d workers, after %d others", len(workers), left)
			}
		})
	}
}

// TestClaimed: a worker that a running generator says it has is not taken,
// whatever the registry says.
func TestClaimed(t *testing.T) {
	claimed := func(workers ...int64) func(*setup) {
		return func(s *setup) {
			s.Claimed = func(worker int64) bool { return slices.Contains(workers, worker) }
		}
	}
	held := func(worker int64) func(*setup) {
		return func(s *setup) { s.Held = func(held int64) bool { return held == worker } }
	}
	t.Run("one that nobody has", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			if got := w.start(claimed(0, 1, 3)).take(0); got.Worker != 2 {
				t.Errorf("worker %d was taken, want 2", got.Worker)
			}
		})
	})
	t.Run("one whose reservation is over", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.start(as("b")).kill()
			time.Sleep(time.Hour)
			if got := w.start(claimed(0)).take(0); got.Worker != 1 {
				t.Errorf("worker %d was taken, want 1", got.Worker)
			}
		})
	})
	t.Run("all of them", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.start(as("b")).kill()
			time.Sleep(time.Hour)
			n := w.start(claimed(0), func(s *setup) { s.LastWorker = 0 })
			n.refused(snowflake.ErrNoWorker)
			if got := w.record(0); got.Node != "b" {
				t.Errorf("the record is %+v", got)
			}
		})
	})
	t.Run("its own", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			n := w.start()
			n.run(time.Second)
			n = w.start(on(n.kill()), claimed(0), held(0))
			time.Sleep(3 * time.Second)
			if got := n.take(0); got.Worker != 1 {
				t.Errorf("worker %d was taken, want 1", got.Worker)
			}
			n.wantTold("lost 0", "acquired 1", "recovered: lost")
		})
	})
	t.Run("its own, which another has just lost", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			n := w.start()
			n.run(time.Second)
			last := n.last
			n = w.start(on(n.kill()), claimed(0))
			n.last = last
			time.Sleep(3 * time.Second)
			if got := n.take(0); got.Worker != 0 {
				t.Errorf("worker %d was taken, want 0", got.Worker)
			}
			n.wantTold("acquired 0")
		})
	})
}

// TestSettled: before the others have said what they hold, only what is its own
// is taken, and only with the registry's word for it.
func TestSettled(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var settled atomic.Bool
		slowly := func(s *setup) { s.Settled = settled.Load }
		n := w.start(slowly)
		time.Sleep(10 * time.Second)
		n.refused(snowflake.ErrNoWorker)
		if all := w.memory.Snapshot(); len(all) != 0 {
			t.Errorf("reserved was %v", all)
		}
		settled.Store(true)
		time.Sleep(1500 * ms)
		n.run(10 * time.Second)

		settled.Store(false)
		last := n.last
		n = w.start(on(n.stop()), slowly)
		n.last = last
		time.Sleep(ms)
		n.take(0)

		last = n.last
		n = w.start(on(n.stop()), slowly, down)
		n.last = last
		n.refused(snowflake.ErrNoWorker)
		settled.Store(true)
		time.Sleep(1500 * ms)
		n.take(0)
	})
}

// TestLostAnswers: whether a write was done or not when its answer did not
// come, the generator goes on with one worker; also when it is killed at that
// moment.
func TestLostAnswers(t *testing.T) {
	// before brings about that the write under test is the next.
	nothing := func(*world) *snowflaketest.Disk { return snowflaketest.NewDisk() }
	for name, c := range map[string]struct {
		call   string
		before func(w *world) *snowflaketest.Disk
	}{
		"add": {"Add", nothing},
		"claim of the own worker": {"Put", func(w *world) *snowflaketest.Disk {
			n := w.start()
			n.run(10 * time.Second)
			return n.kill()
		}},
		"claim of another's": {"Put", func(w *world) *snowflaketest.Disk {
			w.start(as("b")).kill()
			time.Sleep(time.Hour)
			return snowflaketest.NewDisk()
		}},
	} {
		for _, fault := range []snowflaketest.Fault{snowflaketest.Done, snowflaketest.NotDone} {
			for _, killed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, done %v, killed %v", name, fault == snowflaketest.Done, killed), func(t *testing.T) {
					bubble(t, func(t *testing.T, w *world) {
						d, once := c.before(w), false
						n := w.start(on(d), func(s *setup) {
							s.Registry.(*registry).set(func(_ context.Context, call string) snowflaketest.Fault {
								if call != c.call || once {
									return snowflaketest.None
								}
								once = true
								return fault
							})
						})
						if !once {
							t.Fatalf("there was no %s", c.call)
						}
						n.refused(snowflake.ErrNoWorker)
						if killed {
							n = w.start(on(n.kill()))
						}
						time.Sleep(3 * time.Second) // it may have to rest
						if got := n.take(0); got.Worker != 0 {
							t.Errorf("it has worker %d, want 0", got.Worker)
						}
						n.run(time.Minute)
						n.wantTold("acquired 0")
						if all := w.memory.Snapshot(); len(all) != 1 {
							t.Errorf("it used %d workers", len(all))
						}
					})
				})
			}
		}
	}
}

// TestLostReports: a generator that runs notices nothing of it.
func TestLostReports(t *testing.T) {
	for _, fault := range []snowflaketest.Fault{snowflaketest.Done, snowflaketest.NotDone} {
		bubble(t, func(t *testing.T, w *world) {
			n := w.start()
			writes := 0
			n.registry.set(func(_ context.Context, call string) snowflaketest.Fault {
				if call == "Put" {
					writes++
					if writes%2 == 0 {
						return fault
					}
				}
				return snowflaketest.None
			})
			n.run(5 * time.Minute)
			n.wantTold("acquired 0")
			if ahead := n.State().ReservedUntil - w.clock.right(); ahead < 4*60_000 {
				t.Errorf("%d ms are reserved", ahead)
			}
		})
	}
}

// TestRetire: a clean end leaves reserved what a restart may need, also if the
// answer does not come; and the worker is soon free for others.
func TestRetire(t *testing.T) {
	for name, fault := range map[string]snowflaketest.Fault{
		"answered": snowflaketest.None, "not done": snowflaketest.NotDone, "done": snowflaketest.Done,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				const grace = 30 * time.Second
				n := w.start(func(s *setup) { s.Grace = grace })
				n.run(2 * time.Minute)
				n.take(0)
				used := w.parts(n.last).UnixMS
				n.registry.set(func(context.Context, string) snowflaketest.Fault { return fault })
				d := n.stop()
				until, before := used+1+grace.Milliseconds(), w.record(0).ReservedUntil
				if lowered := before == until; lowered != (fault != snowflaketest.NotDone) {
					t.Errorf("reserved is until %d, want %d unless the write was not done", before, until)
				}
				if fault == snowflaketest.None {
					n.wantTold("acquired 0", "released 0")
				} else {
					n.wantTold("acquired 0")
				}
				if s, _ := n.file.Saved(); s.ReservedUntil != until {
					t.Errorf("the file says until %d, want %d", s.ReservedUntil, until)
				}
				// Whatever the registry has, the file keeps its owner to what it may have.
				last := n.last
				n = w.start(on(d), down)
				n.last = last
				n.run(grace - time.Second)
				time.Sleep(time.Second + ms)
				n.refused(snowflake.ErrNoWorker)
				n.stop()
				if got := n.registry.written(); len(got) != 0 {
					t.Errorf("it wrote %+v, without ever having seen the record", got)
				}

				other := w.start(as("b"), func(s *setup) { s.LastWorker = 0 })
				if fault == snowflaketest.NotDone {
					other.refused(snowflake.ErrNoWorker)
					time.Sleep(time.Duration(before-w.clock.right())*ms + 1500*ms)
				}
				other.take(0)
			})
		})
	}
}

// TestRetireAfterOldList: a list that is older than the reservation makes the
// generator stop, and must not make its last word give free what it has used.
func TestRetireAfterOldList(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		n.take(0)
		old := []snowflake.Entry{w.record(0)}
		n.run(3 * time.Minute)
		n.take(0)
		used := w.parts(n.last).UnixMS
		if used < old[0].ReservedUntil {
			t.Fatalf("the list is not old enough: it has %d, where IDs are from %d", old[0].ReservedUntil, used)
		}
		lost := false
		n.registry.set(func(_ context.Context, call string) snowflaketest.Fault {
			if call == "Put" && !lost {
				lost = true
				return snowflaketest.Done // so that the next one is a conflict
			}
			return snowflaketest.None
		})
		n.registry.age(old)
		for range 10 { // until it has looked
			time.Sleep(time.Second)
			synctest.Wait()
		}
		n.refused(snowflake.ErrNoWorker)
		n.registry.age(nil)
		n.stop()
		if until := w.record(0).ReservedUntil; until <= used {
			t.Errorf("the record is reserved until %d, where IDs are from %d", until, used)
		}
	})
}

// TestClaimAfterAway: what a generator issued from its file alone, up to the
// last moment, is kept in mind when the registry comes back.
func TestClaimAfterAway(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		n.run(30 * time.Second)
		var slow atomic.Int64
		n = w.start(on(n.kill()), down, func(s *setup) {
			s.Held = func(int64) bool { time.Sleep(time.Duration(slow.Load())); return false }
		})
		time.Sleep(2 * time.Second)
		n.run(10 * time.Second)
		slow.Store(int64(4 * time.Second)) // the ceiling is raised between the two answers of the registry
		n.registry.away(false)
		for range 100 {
			time.Sleep(100 * ms)
			synctest.Wait()
			n.take(0)
		}
		n.wantTold("acquired 0")
	})
}

// TestWorkerChangesWithinMillisecond: IDs increase also from a higher worker to
// a lower one.
func TestWorkerChangesWithinMillisecond(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		gone := w.start(as("b"))
		n := w.start(func(s *setup) { s.Clock = w.clock.every(time.Second) })
		gone.kill()
		time.Sleep(2 * time.Minute)
		n.take(0)
		e := w.record(1)
		e.Node, e.Incarnation = "c", "another"
		if _, err := w.memory.Put(t.Context(), e.Record, e.Version); err != nil {
			t.Fatal(err)
		}
		go n.Verify(t.Context())
		time.Sleep(100 * ms)
		synctest.Wait()
		n.wantTold("acquired 1", "lost 1", "acquired 0", "recovered: lost")
		n.take(900 * ms)
	})
}

// TestWorkerNotWanted: whoever is to take another worker than before gives the
// old one free, down to what was used of it.
func TestWorkerNotWanted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		n.run(30 * time.Second)
		used := n.last
		d := n.kill()
		n = w.start(on(d), func(s *setup) { s.FirstWorker, s.LastWorker = 7, 7 })
		time.Sleep(3 * time.Second)
		if got := n.take(0); got.Worker != 7 {
			t.Errorf("worker %d was taken, want 7", got.Worker)
		}
		n.wantTold("released 0", "acquired 7")
		until := w.record(0).ReservedUntil
		if last := w.parts(used).UnixMS; until <= last || until > last+2001 {
			t.Errorf("worker 0 is reserved for %d ms after the last ID, want 1 to 2001", until-last)
		}
	})
}
