package snowflaketest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/snowflake"
)

func empty(tb testing.TB, b Backend) {
	wantList(tb, b.Open(tb))
}

func addAndList(tb testing.TB, b Backend) {
	s, other := b.Open(tb), b.Open(tb)
	var want []snowflake.Entry
	for _, worker := range []int64{1023, 7, 0, 4095, 10} {
		r := record(fmt.Sprintf(`rack "%d" ü`, worker))
		r.ReservedUntil = 253_402_300_799_999 // the last ms of the year 9999
		e, err := s.Add(within(tb), r, snowflake.Choice{First: worker, Last: worker})
		r.Worker = worker
		if err != nil || e.Record != r || e.Version == 0 {
			tb.Fatalf("Add(%d): %+v, %v; want %+v and a version", worker, e, err, r)
		}
		want = append(want, e)
	}
	wantList(tb, other, want[2], want[1], want[4], want[0], want[3])
}

func choice(tb testing.TB, b Backend) {
	s := b.Open(tb)
	c := snowflake.Choice{First: 1020, Last: 1029, Taken: func(worker int64) bool { return worker%2 == 0 }}
	added := make(map[int64]bool)
	for range 5 {
		e, err := s.Add(within(tb), record("a"), c)
		if err != nil {
			tb.Fatalf("Add: %v", err)
		}
		if !c.Allows(e.Worker) || added[e.Worker] {
			tb.Errorf("Add chose worker %d; want an odd one of 1020 to 1029 that is not in %v", e.Worker, added)
		}
		added[e.Worker] = true
	}
	_, err := s.Add(within(tb), record("b"), c)
	wantError(tb, "Add when the rest is claimed", err, snowflake.ErrFull)
	_, err = s.Add(within(tb), record("b"), snowflake.Choice{First: 5, Last: 4})
	wantError(tb, "Add with nothing to choose from", err, snowflake.ErrFull)
	e, err := s.Add(within(tb), record("b"), snowflake.Choice{First: 0, Last: 4095})
	if err != nil || e.Worker < 0 || e.Worker > 4095 || added[e.Worker] {
		tb.Errorf("Add to 4,096 workers: %d, %v", e.Worker, err)
	}
}

func full(tb testing.TB, b Backend) {
	s := b.Open(tb)
	three, four := add(tb, s, 3, "a"), add(tb, s, 4, "b")
	_, err := b.Open(tb).Add(within(tb), record("c"), snowflake.Choice{First: 3, Last: 4})
	wantError(tb, "Add when all have a record", err, snowflake.ErrFull)
	wantList(tb, s, three, four)
	move(tb, s, three)
	move(tb, s, four)
}

func manyHandles(tb testing.TB, b Backend) {
	const handles, each = 16, 4
	c := snowflake.Choice{First: 100, Last: 100 + handles*each - 1}
	var mu sync.Mutex
	added := make(map[int64]snowflake.Entry)
	var wg sync.WaitGroup
	for i := range handles {
		s, ctx := b.Open(tb), within(tb)
		wg.Go(func() {
			for j := range each {
				e, err := s.Add(ctx, record(fmt.Sprint(i, ".", j)), c)
				if err != nil {
					tb.Errorf("Add: %v", err)
					return
				}
				mu.Lock()
				if first, ok := added[e.Worker]; ok || !c.Allows(e.Worker) {
					tb.Errorf("Add gave worker %d to %s; %+v has it", e.Worker, e.Node, first)
				}
				added[e.Worker] = e
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	s := b.Open(tb)
	_, err := s.Add(within(tb), record("one more"), c)
	wantError(tb, "Add when all have a record", err, snowflake.ErrFull)
	var want []snowflake.Entry
	for worker := c.First; worker <= c.Last; worker++ {
		want = append(want, added[worker])
	}
	wantList(tb, s, want...)
}

func put(tb testing.TB, b Backend) {
	s, other := b.Open(tb), b.Open(tb)
	e := add(tb, s, 1023, "a")
	for range 5 {
		before := e
		e = move(tb, s, e)
		wantConflict(tb, other, before.Record, before.Version)
		wantList(tb, other, e)
		s, other = other, s
	}
	// Another holder takes it over: everything but the worker changes.
	r := snowflake.Record{Worker: 1023, Node: "b", Incarnation: "of b", ReservedUntil: 5, Acquired: 6, Reported: 7}
	version, err := other.Put(within(tb), r, e.Version)
	if err != nil {
		tb.Fatalf("Put: %v", err)
	}
	wantList(tb, s, snowflake.Entry{Record: r, Version: version})
}

// putAtOnce lets handles put on the same version: one must win.
func putAtOnce(tb testing.TB, b Backend) {
	const handles, rounds = 4, 25
	var registries []snowflake.Registry
	for range handles {
		registries = append(registries, b.Open(tb))
	}
	last := add(tb, registries[0], 7, "a")
	for round := range rounds {
		var mu sync.Mutex
		var won []snowflake.Entry
		var wg sync.WaitGroup
		for i, s := range registries {
			r, ctx := record(fmt.Sprint("round ", round, " handle ", i)), within(tb)
			r.Worker = 7
			wg.Go(func() {
				version, err := s.Put(ctx, r, last.Version)
				if err != nil {
					wantError(tb, "Put", err, snowflake.ErrConflict)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				won = append(won, snowflake.Entry{Record: r, Version: version})
			})
		}
		wg.Wait()
		if len(won) != 1 {
			tb.Fatalf("of %d that put on version %d, %d succeeded: %+v", handles, last.Version, len(won), won)
		}
		last = won[0]
		wantList(tb, registries[round%handles], last)
	}
}

func putConflict(tb testing.TB, b Backend) {
	s, other := b.Open(tb), b.Open(tb)
	old := add(tb, s, 7, "a")
	now := move(tb, s, old)
	r := record("b")
	r.Worker = 7
	for _, version := range []uint64{0, old.Version, now.Version + 1, now.Version + 1000} {
		wantConflict(tb, other, r, version)
		wantList(tb, other, now)
	}
	move(tb, s, now)
}

func putOnNothing(tb testing.TB, b Backend) {
	s := b.Open(tb)
	e := add(tb, s, 7, "a")
	r := record("b")
	r.Worker = 8
	for _, version := range []uint64{0, 1, e.Version, e.Version + 1} {
		wantConflict(tb, s, r, version)
	}
	wantList(tb, s, e)
	add(tb, s, 8, "c")
}

func putOthers(tb testing.TB, b Backend) {
	s := b.Open(tb)
	var entries []snowflake.Entry
	for _, worker := range []int64{1, 10, 11, 100, 110} {
		entries = append(entries, add(tb, s, worker, "a"))
	}
	for i := range entries {
		entries[i] = move(tb, s, entries[i])
		wantList(tb, s, entries...)
	}
	for _, e := range entries { // the versions are still good for each
		move(tb, s, e)
	}
}

// listAmidPuts lists while all records change: none may be missing, or its
// holder would take it for lost.
func listAmidPuts(tb testing.TB, b Backend) {
	const workers, handles, lists = 60, 3, 100
	s := b.Open(tb)
	var entries []snowflake.Entry
	for i := range workers {
		entries = append(entries, add(tb, s, int64(i), "a"))
	}
	untilList(tb, s, func(got []snowflake.Entry) bool { return len(got) == workers }, "all")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var puts atomic.Int64
	var wg sync.WaitGroup
	for i := range handles {
		s, mine := b.Open(tb), entries[i*workers/handles:(i+1)*workers/handles]
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				e := &mine[n%len(mine)]
				version, err := s.Put(ctx, e.Record, e.Version)
				if err != nil {
					if ctx.Err() == nil {
						tb.Errorf("Put: %v", err)
					}
					return
				}
				e.Version = version
				puts.Add(1)
			}
		})
	}
	for n := 0; (n < lists || puts.Load() < lists) && !tb.Failed(); n++ {
		got, err := s.List(within(tb))
		if err != nil || len(got) != workers {
			tb.Errorf("List amid puts: %d of %d records, %v", len(got), workers, err)
			break
		}
	}
	cancel()
	wg.Wait()
}

func wiped(tb testing.TB, b Backend) {
	s, other := b.Open(tb), b.Open(tb)
	old := add(tb, s, 7, "a")
	now := move(tb, s, old)
	wantList(tb, other, now)
	b.Wipe(tb)
	wantConflict(tb, s, now.Record, now.Version)
	wantConflict(tb, other, old.Record, old.Version)
	wantList(tb, other)
	wantList(tb, s)
	again := add(tb, other, 7, "b")
	wantList(tb, s, again)
	wantList(tb, b.Open(tb), again)
	move(tb, s, again)
}

func restored(tb testing.TB, b Backend) {
	s := b.Open(tb)
	seven, eight := add(tb, s, 7, "a"), add(tb, s, 8, "b")
	restore := b.Save(tb)
	now := seven
	for range 5 {
		now = move(tb, s, now)
	}
	nine := add(tb, s, 9, "c")
	restore()
	wantConflict(tb, s, now.Record, now.Version)
	wantConflict(tb, s, nine.Record, nine.Version)
	// Versions may be other ones than before.
	got := untilList(tb, s, func(got []snowflake.Entry) bool {
		return len(got) == 2 && got[0].Record == seven.Record && got[1].Record == eight.Record
	}, []snowflake.Record{seven.Record, eight.Record})
	for _, e := range got {
		move(tb, s, e)
	}
	add(tb, s, 9, "d")
}

func contextDone(tb testing.TB, b Backend) {
	s := b.Open(tb)
	e := add(tb, s, 7, "a")
	for name, call := range map[string]func(context.Context) error{
		"List": func(ctx context.Context) error { _, err := s.List(ctx); return err },
		"Add": func(ctx context.Context) error {
			_, err := s.Add(ctx, record("b"), snowflake.Choice{First: 8, Last: 8})
			return err
		},
		"Put": func(ctx context.Context) error { _, err := s.Put(ctx, e.Record, e.Version); return err },
	} {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		ended := make(chan error, 1)
		go func() { ended <- call(ctx) }()
		select {
		case err := <-ended:
			if err == nil || errors.Is(err, snowflake.ErrConflict) || errors.Is(err, snowflake.ErrFull) {
				tb.Errorf("%s with a context that is done: %v", name, err)
			}
		case <-time.After(timeout):
			tb.Fatalf("%s did not end with its context", name)
		}
	}
	add(tb, s, 9, "c")
}
