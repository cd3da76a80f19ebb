package zookeeper

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/snowflake"
	server "github.com/leafbus/leafbus/tests/zookeeper"
)

// Generators that start at once, where nobody was before, have a worker each.
func TestFiftyGenerators(t *testing.T) {
	t.Parallel()
	const count = 50
	s := newSite(t, server.Hosts(t))
	var ids allocatortest.Checker
	var generators []*generator
	for i := range count {
		m := newMachine(t, s, fmt.Sprint("n", i), &ids)
		m.config.Reserve = time.Minute // so many reports in each second are more than a busy machine can do
		generators = append(generators, m.start())
	}
	holders := make(map[int64]string)
	for _, g := range generators {
		worker := g.first()
		if other, ok := holders[worker]; ok {
			t.Errorf("worker %d is held by %s and %s", worker, other, g.m.node)
		}
		holders[worker] = g.m.node
	}
	var wg sync.WaitGroup
	for _, g := range generators {
		wg.Go(func() {
			for range 10 {
				if err := g.issue(1000); err != nil {
					t.Errorf("%s: %v", g.m.node, err)
				}
			}
		})
	}
	wg.Wait()
	if n := unique(t, &ids); n < count*10_000 {
		t.Errorf("%d IDs", n)
	}
	if n := len(s.records(t)); n != count {
		t.Errorf("%d nodes, want %d", n, count)
	}
	if n := len(s.incarnations(t)); n != count {
		t.Errorf("%d temporary nodes, want %d", n, count)
	}
}

// The first two of an installation start at once.
func TestFirstTwo(t *testing.T) {
	t.Parallel()
	const rounds = 20
	place := newSite(t, server.Hosts(t))
	for round := range rounds {
		s := *place
		s.name = fmt.Sprint(place.name, ".", round)
		var ids allocatortest.Checker
		a, b := newMachine(t, &s, "a", &ids).start(), newMachine(t, &s, "b", &ids).start()
		if x, y := a.first(), b.first(); x == y {
			t.Errorf("both have worker %d", x)
		}
		a.stop()
		b.stop()
		unique(t, &ids)
		if n := len(s.records(t)); n != 2 {
			t.Errorf("%d nodes", n)
		}
	}
}

// Generators that start and stop in order, each with a new name and an empty
// folder, as pods do, never use up the workers: each takes over one whose grace is
// over. Half of the 12 workers are held or rest, as 512 of 1,024 do when so many
// stop within the grace of 10 minutes; and each changes hands 50 times, which of
// 1,024 takes 51,200 starts.
func TestManyStarts(t *testing.T) {
	t.Parallel()
	const (
		starts, workers, lanes = 600, 12, 2
		between, grace         = 250, 1000 // ms
	)
	s := newSite(t, server.Hosts(t))
	begin := snowflake.SystemClock()().Wall
	var begun atomic.Int64
	passed := func() int64 { return between * min(begun.Load(), starts) } // time goes from start to start, and nothing waits for it
	clock := func() snowflake.Reading {
		return snowflake.Reading{Wall: begin + passed(), Mono: time.Duration(passed()) * time.Millisecond}
	}
	var ids allocatortest.Checker
	var running sync.WaitGroup
	for lane := range lanes {
		r := s.claimed(t, fmt.Sprint("lane", lane)) // connecting would take more than all else
		running.Go(func() {
			for i := begun.Add(1); i <= starts && !t.Failed(); i = begun.Add(1) {
				r.cfg.Node = fmt.Sprint("pod", i)
				m := newMachine(t, s, r.cfg.Node, &ids)
				m.config = snowflake.Config{LastWorker: workers - 1, Grace: grace * time.Millisecond, Clock: clock, MaxWait: time.Minute}
				g := m.startOn(&attended{Registry: r, claimed: true})
				g.first() // which a ZooKeeper that is slow for a moment holds up
				g.stop()
			}
		})
	}
	running.Wait()
	if n := unique(t, &ids); n != starts && !t.Failed() {
		t.Errorf("%d IDs of %d starts", n, starts)
	}
	records := s.records(t)
	if len(records) > workers {
		t.Errorf("%d nodes for %d workers", len(records), workers)
	}
	for name, d := range records {
		if d.ReservedUntil > begin+passed()+grace+1 { // the last ID's time is included
			t.Errorf("%s: %+v, and it is %d", name, d, begin+passed())
		}
	}
}
