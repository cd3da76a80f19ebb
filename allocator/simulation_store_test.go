package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

var (
	errSimAway = errors.New("it is away")
	errSimLost = errors.New("no answer came")
)

// simRandom is the randomness of one actor in a world. What it draws does not depend on what others do.
type simRandom struct {
	mu sync.Mutex
	r  *rand.Rand
}

func newSimRandom(seed, stream uint64) *simRandom {
	return &simRandom{r: rand.New(rand.NewPCG(seed, stream))}
}

func (r *simRandom) n(n int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.r.Int64N(n)
}

// in is true once in so many times.
func (r *simRandom) in(n int64) bool { return r.n(n) == 0 }

// upTo is never 0: in a bubble no timer may be due at once.
func (r *simRandom) upTo(d time.Duration) time.Duration { return 1 + time.Duration(r.n(int64(d))) }

func simPick[T any](r *simRandom, from ...T) T { return from[r.n(int64(len(from)))] }

// simFault is what happens to one request to the store or the ledger.
type simFault struct {
	before, after time.Duration // on the way there, and back
	more          time.Duration // until a late request arrives
	lost          simLoss
	lands         bool // though its sender waits no longer
}

type simLoss int

const (
	lostNothing simLoss = iota
	lostRequest
	lostAnswer
	lostLate // the request arrives when its sender has an error
)

func (r *simRun) draw() simFault {
	random := r.n.random
	f := simFault{before: random.upTo(2 * time.Millisecond), after: random.upTo(2 * time.Millisecond)}
	if r.n.w.calm.Load() || r.n.w.gentle {
		return f
	}
	f.more, f.lands = random.upTo(2*time.Second), random.in(2)
	switch random.n(r.n.w.faulty) {
	case 0:
		f.lost = lostRequest
	case 1:
		f.lost = lostAnswer
	case 2:
		f.lost = lostLate
	case 3:
		f.before = random.upTo(time.Second)
	case 4:
		f.after = random.upTo(time.Second)
	case 5:
		f.after = random.upTo(8 * time.Second)
	}
	return f
}

// simCall makes a request, which do carries out. The errors of do are certain, if they arrive.
func simCall[T any](ctx context.Context, r *simRun, f simFault, away func() error, do func() (T, error)) (v T, err error) {
	w := r.n.w
	arrive := func() (T, error) {
		if err := away(); err != nil {
			var none T
			return none, err
		}
		return do()
	}
	w.live.Add(1)
	defer w.live.Add(-1)
	if err := sleep(ctx, f.before); err != nil {
		if f.lands {
			w.note("landed late")
			w.later(f.more, func() { arrive() })
		}
		return v, err
	}
	switch f.lost {
	case lostRequest:
		w.note("request lost")
		return v, errSimLost
	case lostLate:
		w.note("landed late")
		w.later(f.more, func() { arrive() })
		return v, errSimLost
	}
	if v, err = arrive(); err == errSimAway {
		return v, err
	}
	if f.lost == lostAnswer {
		w.note("answer lost")
		err = errSimLost
	}
	if late := sleep(ctx, f.after); late != nil {
		err = late
	}
	if err != nil {
		var none T
		return none, err
	}
	return v, nil
}

// simStore is the database as one process sees it. Its methods fail; those of the Memory do not.
type simStore struct {
	allocator.Store // nil, for what no generator asks here
	r               *simRun
}

func (s *simStore) away() error { return s.r.n.w.storeAway() }

func (s *simStore) Reserve(ctx context.Context, tag string, n, from int64) (allocator.Grant, error) {
	w := s.r.n.w
	g, err := simCall(ctx, s.r, s.r.draw(), s.away, func() (allocator.Grant, error) {
		db := s.r.n.database()
		if t, err := db.Get(ctx, tag); w.shared && err == nil && t.MaxID < from {
			return allocator.Grant{}, &allocator.RegressedError{Tag: tag, Got: t.MaxID, Seen: from}
		}
		g, err := db.Reserve(context.Background(), tag, n, from)
		w.trace("%s reserves %s from %d: %v, %v", s.r.name, tag, from, g.Range, err)
		return g, err
	})
	if moved, ok := errors.AsType[*allocator.AdvancedError](err); ok {
		s.r.mu.Lock()
		s.r.moved[tag]++
		s.r.mu.Unlock()
		if !w.wentBack.Load() {
			w.fail("%s: %v, though the store is well", s.r.name, moved)
		}
	}
	return g, err
}

func (s *simStore) Get(ctx context.Context, tag string) (allocator.Tag, error) {
	return simCall(ctx, s.r, s.r.draw(), s.away, func() (allocator.Tag, error) { return s.r.n.database().Get(ctx, tag) })
}

// change makes a request that changes a tag. Without an answer it may have happened.
func (s *simStore) change(ctx context.Context, do func(db *allocatortest.Memory) (allocator.Tag, error)) (allocator.Tag, error) {
	t, err := simCall(ctx, s.r, s.r.draw(), s.away, func() (allocator.Tag, error) { return do(s.r.n.database()) })
	if errors.Is(err, errSimLost) || ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", allocator.ErrUncertain, err)
	}
	return t, err
}

func (s *simStore) Create(ctx context.Context, tag allocator.Tag) (allocator.Tag, error) {
	return s.change(ctx, func(db *allocatortest.Memory) (allocator.Tag, error) { return db.Create(context.Background(), tag) })
}

func (s *simStore) Update(ctx context.Context, tag string, c allocator.Change) (allocator.Tag, error) {
	return s.change(ctx, func(db *allocatortest.Memory) (allocator.Tag, error) { return db.Update(context.Background(), tag, c) })
}

func (s *simStore) Delete(ctx context.Context, tag string, from int64) (allocator.Tag, error) {
	return s.change(ctx, func(db *allocatortest.Memory) (allocator.Tag, error) {
		return db.Delete(context.Background(), tag, from)
	})
}

func (s *simStore) Floors(ctx context.Context, f func(tag string, floor int64, rules allocator.Rules)) error {
	_, err := simCall(ctx, s.r, s.r.draw(), s.away, func() (struct{}, error) {
		return struct{}{}, s.r.n.database().Floors(context.Background(), f)
	})
	return err
}

// Watch reads the table again and again, as that of a database does.
func (s *simStore) Watch(ctx context.Context, f func(allocator.Tag)) error {
	known := make(map[string]allocator.Tag)
	for ctx.Err() == nil {
		if s.away() == nil {
			now := s.r.n.database().Snapshot()
			for tag := range known {
				if _, ok := now[tag]; !ok {
					delete(known, tag)
					f(allocator.Tag{Name: tag, Deleted: true})
				}
			}
			for tag, t := range now {
				was, ok := known[tag]
				known[tag] = t
				if !ok || was.Floor != t.Floor || was.Step != t.Step || was.Deleted != t.Deleted {
					f(t)
				}
			}
		}
		if err := sleep(ctx, 100*time.Millisecond+s.r.n.random.upTo(500*time.Millisecond)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// simLedger is the ledger as one process sees it.
type simLedger struct{ r *simRun }

func (l simLedger) away() error { return l.r.n.w.ledgerAway() }

func (l simLedger) Read(ctx context.Context, tag string) (allocator.Entry, error) {
	w := l.r.n.w
	return simCall(ctx, l.r, l.r.draw(), l.away, func() (allocator.Entry, error) {
		if e, ok := w.oldEntry(tag); ok && !w.calm.Load() && l.r.n.random.in(20) {
			w.note("old entry")
			return e, nil
		}
		return w.ledger.Read(context.Background(), tag)
	})
}

func (l simLedger) Write(ctx context.Context, tag string, e allocator.Entry) (revision uint64, err error) {
	w := l.r.n.w
	f := l.r.draw()
	if w.ledgerBack { // a write that lands after a restore may hit another record: see claimFresh
		f.before, f.more = min(f.before, 200*time.Millisecond), min(f.more, 200*time.Millisecond)
	}
	return simCall(ctx, l.r, f, l.away, func() (uint64, error) {
		was, _ := w.ledger.Read(context.Background(), tag)
		revision, err := w.ledger.Write(context.Background(), tag, e)
		w.trace("%s writes %s: %+v over %+v: %v", l.r.name, tag, e, was, err)
		if err != nil {
			w.note("conflict")
			return 0, err
		}
		w.keepEntry(tag, was, e.End)
		switch lower := e.End < was.End || e.Floor < was.Floor; {
		case lower && w.ledgerBack: // the revision meant another record before the ledger went back
			w.note("the ledger is lowered")
			w.expose(true)
		case lower:
			w.fail("%s lowers the record of %s from %+v to %+v", l.r.name, tag, was, e)
		}
		return revision, nil
	})
}

func (l simLedger) Each(ctx context.Context, f func(tag string, e allocator.Entry)) error {
	_, err := simCall(ctx, l.r, l.r.draw(), l.away, func() (struct{}, error) {
		return struct{}{}, l.r.n.w.ledger.Each(context.Background(), f)
	})
	return err
}
