package snowflake_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// origin is when the clocks of the tests begin: 2026-01-01.
const origin = 1_767_225_600_000

// clock is a machine's clock that runs with the bubble's, and can be set.
type clock struct {
	begin  time.Time
	mu     sync.Mutex
	ahead  time.Duration // of the wall clock
	passed time.Duration // of which the bubble's clock knows nothing
}

func newClock() *clock { return &clock{begin: time.Now()} }

func (c *clock) read() snowflake.Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	mono := time.Since(c.begin) + c.passed
	return snowflake.Reading{Wall: origin + (mono + c.ahead).Milliseconds(), Mono: mono}
}

// every is a wall clock that moves only so often: to its generator the
// machine is one that hardly ever runs.
func (c *clock) every(d time.Duration) func() snowflake.Reading {
	return func() snowflake.Reading {
		r := c.read()
		r.Wall -= r.Wall % d.Milliseconds()
		return r
	}
}

// step sets the wall clock.
func (c *clock) step(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += by
}

// pass lets time go by at once, in which nothing happens.
func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passed += d
}

// right is what the wall clock would be if nobody had set it.
func (c *clock) right() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return origin + (time.Since(c.begin) + c.passed).Milliseconds()
}

// world is what the generators of a test share. When the test ends, no two of
// the IDs that they issued may be the same.
type world struct {
	t      *testing.T
	layout snowflake.Layout
	clock  *clock
	memory *snowflaketest.Memory
	ids    allocatortest.Checker
}

// setup is how a generator of a test is started.
type setup struct {
	snowflake.Config
	installation string
	disk         *snowflaketest.Disk
	down         bool          // the registry is away
	slow         time.Duration // so long each call of it takes
	wrap         func(snowflake.Disk) snowflake.Disk
}

// node is a generator that runs, by default as node "a" with workers 0 to 7.
type node struct {
	*snowflake.Generator
	w        *world
	registry *registry
	disk     *snowflaketest.Disk
	file     *snowflake.File
	end      func() // ends Run
	ended    <-chan struct{}
	ran      error // what Run returned, once it has ended
	last     int64 // ID

	mu     sync.Mutex
	events []snowflake.Event
}

// bubble runs f in virtual time. It fails where a goroutine is left.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, layout: snowflake.DefaultLayout(), clock: newClock(), memory: snowflaketest.NewMemory()}
		t.Cleanup(func() {
			if _, err := w.ids.Check(); err != nil {
				t.Error(err)
			}
		})
		f(t, w)
	})
}

// start starts a generator and lets it do all that it can do at once.
func (w *world) start(changes ...func(*setup)) *node {
	w.t.Helper()
	n := &node{w: w, registry: &registry{Registry: w.memory}}
	s := setup{installation: "prod", disk: snowflaketest.NewDisk()}
	s.Config = snowflake.Config{
		Layout: w.layout, Registry: n.registry, Place: "inode:1", Node: "a", Clock: w.clock.read, LastWorker: 7,
		Log: slog.New(slog.DiscardHandler), Notify: n.notify,
	}
	for _, change := range changes {
		change(&s)
	}
	if s.down {
		n.registry.away(true)
	}
	n.registry.slow(s.slow)
	n.disk = s.disk
	if s.wrap == nil {
		s.wrap = func(d snowflake.Disk) snowflake.Disk { return d }
	}
	n.file = open(w.t, s.wrap(n.disk))
	s.File = n.file
	n.Generator = snowflake.New(s.Config)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	n.ended = done
	go func() { defer close(done); n.ran = n.Run(ctx, s.installation) }()
	n.end = func() { cancel(); <-done }
	w.t.Cleanup(n.end)
	synctest.Wait()
	return n
}

// stop ends the generator in order, and returns its disk for the next.
func (n *node) stop() *snowflaketest.Disk {
	n.w.t.Helper()
	n.end()
	if err := n.Close(); err != nil {
		n.w.t.Errorf("Close: %v", err)
	}
	return n.disk.Kill()
}

// kill ends the generator's process, and returns its disk for the next.
func (n *node) kill() *snowflaketest.Disk {
	n.registry.away(true)
	d := n.disk.Kill()
	n.end()
	return d
}

func (n *node) notify(e snowflake.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, e)
}

// told returns in short what was told since the last call.
func (n *node) told() (told []string) {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range n.events {
		var s string
		switch e := e.(type) {
		case snowflake.ClockBackwards:
			s = fmt.Sprintf("%s: back %d ms", e.Action, e.Offset)
		case snowflake.ClockSkewed:
			s = "skewed"
		case snowflake.WorkerAcquired:
			s = fmt.Sprint("acquired ", e.Worker)
		case snowflake.WorkerReleased:
			s = fmt.Sprint("released ", e.Worker)
		case snowflake.WorkerLost:
			s = fmt.Sprint("lost ", e.Worker)
		case snowflake.WorkerExpiring:
			s = fmt.Sprint("expiring ", e.Worker)
		case snowflake.Ending:
			s = "ending"
		case snowflake.Recovered:
			s = "recovered: " + e.Episode
		}
		told = append(told, s)
	}
	n.events = nil
	return told
}

// wantTold checks what was told since the last look, in its order.
func (n *node) wantTold(want ...string) {
	n.w.t.Helper()
	if got := n.told(); !slices.Equal(got, want) {
		n.w.t.Errorf("told was %q, want %q", got, want)
	}
}

// try asks for so many IDs, checks what comes, and says how long it took.
func (n *node) try(count int64) (ranges []snowflake.Range, took time.Duration, err error) {
	n.w.t.Helper()
	begin := time.Now()
	ranges, err = n.Take(context.Background(), count)
	took = time.Since(begin)
	if err != nil {
		if ranges != nil {
			n.w.t.Errorf("Take(%d) returned both %v and %v", count, ranges, err)
		}
		return nil, took, err
	}
	n.check(count, ranges)
	return ranges, took, nil
}

// check takes in the ranges that were issued to a request after all others.
// What was issued must be below the ceiling on disk.
func (n *node) check(count int64, ranges []snowflake.Range) {
	n.w.t.Helper()
	if s, ok := n.file.Saved(); !ok || n.w.parts(ranges[len(ranges)-1].Last).UnixMS >= s.Ceiling {
		n.w.t.Errorf("%v were issued, and the file says %+v", ranges, s)
	}
	for _, r := range ranges {
		if first, last := n.w.parts(r.First), n.w.parts(r.Last); r.First <= n.last || first.UnixMS != last.UnixMS || first.Worker != last.Worker {
			n.w.t.Errorf("%v came after %d: want greater IDs, and in one range those of one millisecond", r, n.last)
		}
		count -= r.Len()
		n.last = r.Last
	}
	if count != 0 {
		n.w.t.Errorf("%d IDs too few came", count)
	}
	n.w.ids.Add(ranges...)
}

// take takes one ID, which must come after the given time.
func (n *node) take(want time.Duration) snowflake.Parts {
	n.w.t.Helper()
	ranges, took, err := n.try(1)
	if err != nil || took != want {
		n.w.t.Fatalf("Take(1): %v after %v, want an ID after %v", err, took, want)
	}
	return n.w.parts(ranges[0].First)
}

// refused asks for one ID, which must be refused at once.
func (n *node) refused(want error) error {
	n.w.t.Helper()
	ranges, took, err := n.try(1)
	if !errors.Is(err, want) || took != 0 {
		n.w.t.Errorf("Take(1): %v, %v after %v; want error %v at once", ranges, err, took, want)
	}
	return err
}

func (w *world) parts(id int64) snowflake.Parts {
	w.t.Helper()
	p, err := w.layout.Decode(id, math.MaxInt64)
	if err != nil {
		w.t.Errorf("%d was issued: %v", id, err)
	}
	return p
}

func TestCounts(t *testing.T) {
	small := snowflake.Layout{Epoch: snowflake.DefaultEpoch, TimeBits: 41, WorkerBits: 20, SequenceBits: 2}
	for name, c := range map[string]struct {
		layout   snowflake.Layout
		maxBatch int64
		maxWait  time.Duration
		most     int64
	}{
		"default":                      {snowflake.DefaultLayout(), 0, 0, 1_000_000},
		"configured":                   {snowflake.DefaultLayout(), 100, 0, 100},
		"all that comes in a wait":     {small, 0, 0, 3 * 4000},
		"all that comes in a long one": {small, 0, time.Minute, 60 * 4000},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.layout = c.layout
				n := w.start(func(s *setup) { s.MaxBatch, s.MaxWait = c.maxBatch, c.maxWait })
				for _, bad := range []int64{0, -1, math.MinInt64} {
					if _, _, err := n.try(bad); !errors.Is(err, snowflake.ErrBadCount) {
						t.Errorf("Take(%d): %v", bad, err)
					}
				}
				for _, tooLarge := range []int64{c.most + 1, math.MaxInt64} {
					_, _, err := n.try(tooLarge)
					if !errors.Is(err, snowflake.ErrBatchTooLarge) || !strings.Contains(err.Error(), fmt.Sprint(c.most)) {
						t.Errorf("Take(%d): %v; want one that names the most, %d", tooLarge, err, c.most)
					}
				}
				time.Sleep(time.Second)
				for _, good := range []int64{1, 2, c.most / 2} {
					if _, _, err := n.try(good); err != nil {
						t.Errorf("Take(%d): %v", good, err)
					}
				}
			})
		})
	}
}

// TestRanges: a batch has one range for each millisecond that it took IDs
// from, and takes no more milliseconds than it must.
func TestRanges(t *testing.T) {
	for _, count := range []int64{1, 64, 65, 2900, 4096, 10_000, 1_000_000} {
		bubble(t, func(t *testing.T, w *world) {
			n := w.start()
			time.Sleep(time.Second)
			ranges, took, err := n.try(count)
			if err != nil {
				t.Fatal(err)
			}
			// The first begins at random, and a part of the last is not for batches.
			most := (count+128)/4096 + 2
			if got := int64(len(ranges)); got > most {
				t.Errorf("%d IDs came in %d ranges, want at most %d", count, got, most)
			}
			if took > time.Duration(most)*time.Millisecond {
				t.Errorf("%d IDs took %v, want at most %d ms", count, took, most)
			}
			for i, r := range ranges {
				if i > 0 && w.parts(r.First).UnixMS == w.parts(ranges[i-1].Last).UnixMS {
					t.Errorf("%v and %v are of one millisecond", ranges[i-1], r)
				}
			}
		})
	}
}

// TestCeiling: under load, whatever the size of the requests, the layout's 4,096
// IDs a millisecond come, and never more.
func TestCeiling(t *testing.T) {
	for name, c := range map[string]struct {
		callers int // each has one request under way
		sizes   []int64
	}{
		"single":            {4500, []int64{1}},
		"small":             {300, []int64{64, 7}},
		"large":             {20, []int64{65, 1000}},
		"one large request": {1, []int64{1_000_000}},
		"mixed":             {100, []int64{1, 64, 65, 1000, 50_000}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				n := w.start()
				time.Sleep(time.Second)
				const load = 10 * ms
				ctx, cancel := context.WithTimeout(t.Context(), load)
				defer cancel()
				ids := make(map[int64]int64) // of each millisecond
				var mu sync.Mutex
				var wg sync.WaitGroup
				for i := range c.callers {
					count := c.sizes[i%len(c.sizes)]
					wg.Go(func() {
						for ctx.Err() == nil {
							ranges, err := n.Take(t.Context(), count)
							if err != nil {
								t.Errorf("Take(%d): %v", count, err)
								return
							}
							w.ids.Add(ranges...)
							mu.Lock()
							for _, r := range ranges {
								ids[w.parts(r.First).UnixMS] += r.Len()
							}
							mu.Unlock()
						}
					})
				}
				wg.Wait()
				var sum int64
				begin := origin + time.Second.Milliseconds()
				for ms, n := range ids {
					if n > 4096 {
						t.Errorf("%d IDs of millisecond %d", n, ms-begin)
					}
					if ms-begin < load.Milliseconds() {
						sum += n
					}
				}
				// The first begins at random.
				if most := 4096 * load.Milliseconds(); sum < most-128 {
					t.Errorf("%d IDs of %v were issued, want all %d", sum, load, most)
				}
			})
		})
	}
}

// batch asks for IDs beside the test, and returns how long it took when it is
// done.
func (n *node) batch(count int64) (done <-chan time.Duration) {
	took := make(chan time.Duration, 1)
	begin := time.Now()
	go func() {
		ranges, err := n.Take(context.Background(), count)
		if err != nil {
			n.w.t.Errorf("Take(%d): %v", count, err)
		}
		n.w.ids.Add(ranges...)
		took <- time.Since(begin)
	}()
	synctest.Wait()
	return took
}

// TestBatchHoldsUpNobody: single requests are answered within 2 ms while a
// large batch is under way.
func TestBatchHoldsUpNobody(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		time.Sleep(time.Second)
		large := n.batch(1_000_000)
		for asked := 0; ; asked++ {
			select {
			case took := <-large:
				if asked < 200 || took > 400*time.Millisecond {
					t.Errorf("the batch took %v, while %d single requests were asked for", took, asked)
				}
				return
			default:
			}
			_, took, err := n.try(1)
			if err != nil || took > 2*time.Millisecond {
				t.Fatalf("request %d was answered after %v: %v; want within 2ms", asked, took, err)
			}
			time.Sleep(time.Millisecond - 100*time.Microsecond)
		}
	})
}

// TestBatchLeavesShare: a quarter of each millisecond is for small requests as
// long as there are some, also of those milliseconds that the process has missed.
func TestBatchLeavesShare(t *testing.T) {
	for _, tick := range []time.Duration{ms, 8 * ms} {
		bubble(t, func(t *testing.T, w *world) {
			n := w.start(func(s *setup) { s.Clock = w.clock.every(tick) })
			time.Sleep(time.Second)
			large := n.batch(1_000_000)
			var small []<-chan time.Duration
			for range 2 * (4096 / 4 / 64) * int64(tick/ms) { // of two ticks
				small = append(small, n.batch(64))
			}
			for _, s := range small {
				if took := <-s; took > 3*tick {
					t.Fatalf("64 IDs took %v", took)
				}
			}
			select {
			case <-large:
				t.Error("the batch was first")
			default:
			}
			<-large
		})
	}
}

// TestBatchesTakeTurns: whoever asks for little does not wait for who asks for
// much.
func TestBatchesTakeTurns(t *testing.T) {
	for name, c := range map[string]struct {
		before, more int64 // how many batches of how many IDs are under way
		count        int64
		least, most  time.Duration
	}{
		"65 after a million":             {1, 1_000_000, 65, 0, 2 * time.Millisecond},
		"1,000 after a million":          {1, 1_000_000, 1000, 0, 3 * time.Millisecond},
		"64 do not wait their turn":      {80, 10_000, 64, 0, 2 * time.Millisecond},
		"65 do":                          {80, 10_000, 65, 8 * time.Millisecond, 20 * time.Millisecond},
		"as many again as are under way": {1, 400_000, 400_000, 190 * time.Millisecond, 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				n := w.start()
				time.Sleep(time.Second)
				var before []<-chan time.Duration
				for range c.before {
					before = append(before, n.batch(c.more))
				}
				if took := <-n.batch(c.count); took < c.least || took > c.most {
					t.Errorf("it took %v, want %v to %v", took, c.least, c.most)
				}
				for _, b := range before {
					<-b
				}
			})
		})
	}
}

// request asks for IDs that must be waited for.
func (n *node) request(count int64) *snowflake.Waiter {
	n.w.t.Helper()
	ranges, w, err := n.Request(nil, count)
	if w == nil {
		n.w.t.Fatalf("Request(%d): %v, %v; want one that waits", count, ranges, err)
	}
	return w
}

// refuses asks for IDs that must be refused at once.
func (n *node) refuses(count int64, want error) {
	n.w.t.Helper()
	if ranges, w, err := n.Request(nil, count); w != nil || !errors.Is(err, want) {
		n.w.t.Errorf("Request(%d): %v, waits: %v, %v; want %v", count, ranges, w != nil, err, want)
	}
}

// wait waits for a request that was made to wait, and must end like this after
// exactly that time.
func (n *node) wait(ctx context.Context, w *snowflake.Waiter, want error, after time.Duration) {
	n.w.t.Helper()
	begin := time.Now()
	ranges, err := w.Wait(ctx)
	if took := time.Since(begin); !errors.Is(err, want) || err != nil && ranges != nil || took != after {
		n.w.t.Errorf("Wait: %v, %v after %v; want %v after %v", ranges, err, took, want, after)
	}
	n.w.ids.Add(ranges...)
}

// TestOverloaded: what waits is bounded in requests and in IDs. Who gives up
// leaves room.
func TestOverloaded(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	// No request is served before the registry has answered.
	slow := func(s *setup) { s.slow = time.Second / 2 } // it is asked twice
	t.Run("requests", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			n := w.start(slow, func(s *setup) { s.MaxWaiting = 10 })
			var waiters []*snowflake.Waiter
			for i := range 10 {
				waiters = append(waiters, n.request([]int64{1, 100}[i%2]))
			}
			n.refuses(1, snowflake.ErrOverloaded)
			n.refuses(100, snowflake.ErrOverloaded)
			if got := n.State().Waiting; got != 10 {
				t.Errorf("%d requests wait, want 10", got)
			}
			n.wait(gone, waiters[0], context.Canceled, 0)
			waiters[0] = n.request(1)
			n.refuses(1, snowflake.ErrOverloaded)
			n.wait(t.Context(), waiters[0], nil, time.Second)
			for _, waiter := range waiters[1:] {
				n.wait(t.Context(), waiter, nil, 0)
			}
		})
	})
	t.Run("IDs", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			n := w.start(slow)
			const capacity = 3000 * 4096 // all that comes in MaxWait
			var waiters []*snowflake.Waiter
			for range capacity / 1_000_000 {
				waiters = append(waiters, n.request(1_000_000))
			}
			n.refuses(1_000_000, snowflake.ErrOverloaded)
			n.refuses(capacity%1_000_000+1, snowflake.ErrOverloaded)
			n.request(capacity % 1_000_000)
			n.refuses(1, snowflake.ErrOverloaded)
			n.wait(gone, waiters[0], context.Canceled, 0)
			n.request(1_000_000)
			n.refuses(1, snowflake.ErrOverloaded)
		})
	})
}

// TestWaitEnds: a request waits for as long as it may, and no longer.
func TestWaitEnds(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start(func(s *setup) { s.slow, s.MaxWait = 700*time.Millisecond, time.Second })
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(500*time.Millisecond, func() { cancel(why) })
		late, early := n.request(1), n.request(1)
		n.wait(ctx, early, why, 500*time.Millisecond)
		n.wait(t.Context(), late, snowflake.ErrTimedOut, 500*time.Millisecond)
		n.wait(t.Context(), n.request(1), nil, 400*time.Millisecond)
		if got := n.State().Waiting; got != 0 {
			t.Errorf("%d requests wait, want none", got)
		}
	})
}

// TestGivenUp: what a batch had when its caller gave up is lost, and nothing
// else.
func TestGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		time.Sleep(time.Second)
		first, second := n.request(1_000_000), n.request(300_000)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		n.wait(ctx, first, context.DeadlineExceeded, 50*time.Millisecond)
		// A half of the time was the other's, the rest is the second's alone.
		begin := time.Now()
		ranges, err := second.Wait(t.Context())
		if took := time.Since(begin); err != nil || took < 40*time.Millisecond || took > 60*time.Millisecond {
			t.Errorf("the other batch came after another %v: %v; want about 50ms", took, err)
		}
		n.check(300_000, ranges)
	})
}

// TestDrain: from the end of Run on nothing waits. What need not wait is
// served until Close.
func TestDrain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		time.Sleep(time.Second)
		waiters := []*snowflake.Waiter{n.request(1_000_000), n.request(100)}
		n.end()
		for _, waiter := range waiters {
			n.wait(t.Context(), waiter, snowflake.ErrClosed, 0)
		}
		n.wantTold("acquired 0", "released 0")
		for range 10 {
			time.Sleep(time.Millisecond)
			n.take(0)
			n.refuses(4096, snowflake.ErrClosed)
		}
		if err := n.State().Err; err != nil {
			t.Errorf("the state is %v while IDs are served", err)
		}
		if err := n.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		time.Sleep(time.Millisecond)
		n.refused(snowflake.ErrClosed)
		if err := n.State().Err; !errors.Is(err, snowflake.ErrClosed) {
			t.Errorf("the state is %v, want %v", err, snowflake.ErrClosed)
		}
	})
}

// TestTakeAllocatesNothing: IDs that need not be waited for cost no allocation.
func TestTakeAllocatesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		dst := make([]snowflake.Range, 0, 1)
		for _, count := range []int64{1, 2} {
			time.Sleep(time.Millisecond) // all of the tests are in one millisecond
			if got := testing.AllocsPerRun(1000, func() {
				if ranges, waiter, err := n.Request(dst, count); waiter != nil || err != nil || len(ranges) != 1 {
					t.Error(ranges, waiter, err)
				}
			}); got != 0 {
				t.Errorf("%v allocations for Request(%d)", got, count)
			}
		}
		time.Sleep(time.Millisecond)
		if got := testing.AllocsPerRun(1000, func() {
			if ranges, err := n.Take(context.Background(), 1); err != nil || len(ranges) != 1 {
				t.Error(len(ranges), err)
			}
		}); got != 0 {
			t.Errorf("%v allocations for Take(1)", got)
		}
	})
}
