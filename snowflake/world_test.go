package snowflake_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
	return snowflake.Reading{Wall: origin + (mono + c.ahead).Milliseconds(), Mono: mono.Milliseconds()}
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
	late         time.Duration // so long after New is Run called
	wrap         func(snowflake.Disk) snowflake.Disk
	bounded      bool // the wait for the disk is, as OpenFile bounds it
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
	from   int64 // the earliest time that the last acquired event allows
	issued int64 // the latest time of an ID
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
	openFile := snowflake.NewFile
	if s.bounded {
		openFile = snowflake.NewBoundedFile
	}
	var err error
	if n.file, err = openFile(s.wrap(n.disk)); err != nil {
		w.t.Fatalf("NewFile: %v", err)
	}
	s.File = n.file
	n.Generator = snowflake.New(s.Config)
	time.Sleep(s.late)
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
	switch e := e.(type) {
	case snowflake.WorkerAcquired:
		n.from = e.From
	case snowflake.WorkerReleased:
		n.mustBeAbove("released", e.ReservedUntil)
	case snowflake.WorkerLost:
		n.mustBeAbove("lost", e.Until)
	}
}

// mustBeAbove checks the end of a worker's times that an event reports.
func (n *node) mustBeAbove(what string, end int64) {
	if n.issued >= end {
		n.w.t.Errorf("an ID of %d was issued, and the event %s says that all are before %d", n.issued, what, end)
	}
}

// newEvents names the events since the last call.
func (n *node) newEvents() (names []string) {
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
		names = append(names, s)
	}
	n.events = nil
	return names
}

// wantEvents checks the events since the last call, in their order.
func (n *node) wantEvents(want ...string) {
	n.w.t.Helper()
	if got := n.newEvents(); !slices.Equal(got, want) {
		n.w.t.Errorf("the events were %q, want %q", got, want)
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
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range ranges {
		if ms := n.w.parts(r.First).UnixMS; ms < n.from {
			n.w.t.Errorf("an ID of %d was issued, and the event says that the first is not before %d", ms, n.from)
		}
		n.issued = max(n.issued, n.w.parts(r.Last).UnixMS)
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
	p, err := w.layout.Decode(id)
	if err != nil {
		w.t.Errorf("%d was issued: %v", id, err)
	}
	return p
}

// as makes the generator of a setup another node, in a folder of its own.
func as(node string) func(*setup) {
	return func(s *setup) { s.Node, s.Place = node, "inode of "+node }
}

// on makes a setup's generator find a disk.
func on(d *snowflaketest.Disk) func(*setup) { return func(s *setup) { s.disk = d } }

func down(s *setup) { s.down = true }

// again starts the generator once more, on what its last run left of the disk. Its IDs go on increasing.
func (n *node) again(d *snowflaketest.Disk, changes ...func(*setup)) *node {
	n.w.t.Helper()
	next := n.w.start(append([]func(*setup){on(d)}, changes...)...)
	next.last = n.last
	return next
}

// thief makes another generator the holder of a worker.
func (w *world) thief(worker int64) snowflake.Entry {
	w.t.Helper()
	e := w.record(worker)
	e.Node, e.Incarnation = "b", "another"
	var err error
	if e.Version, err = w.memory.Put(w.t.Context(), e.Record, e.Version); err != nil {
		w.t.Fatal(err)
	}
	return e
}

// issues takes an ID within the time, and checks its worker.
func (n *node) issues(worker int64, within time.Duration) snowflake.Parts {
	n.w.t.Helper()
	ranges, took, err := n.try(1)
	if err != nil || took > within {
		n.w.t.Fatalf("Take(1): %v after %v, want an ID within %v", err, took, within)
	}
	p := n.w.parts(ranges[0].First)
	if p.Worker != worker {
		n.w.t.Errorf("worker %d issues, want %d", p.Worker, worker)
	}
	return p
}

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
