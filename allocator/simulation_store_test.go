package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

var errSimLost = errors.New("no answer came")

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

// simCall is a request of a process to a server, which do carries out there. It may arrive late, also after the caller
// has given up, or never, and its answer may be lost. A process that stands still sends nothing and receives nothing.
func simCall[T any](ctx context.Context, r *simRun, do func() (T, error)) (none T, err error) {
	n, w := r.n, r.n.w
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	n.thaw()
	there, back, lost := n.delay(), n.delay(), false
	if !w.calm.Load() {
		lost = n.random.in(50)
		if n.random.in(50) {
			there += n.random.upTo(3 * time.Second)
			w.note("late")
		}
	}
	if n.isCut() {
		if lost = true; n.random.n(10) < 7 { // it never arrives
			<-ctx.Done()
			n.thaw()
			return none, errSimLost
		}
	}
	if end, _ := ctx.Deadline(); lost || time.Until(end) < there+back {
		w.note("no answer")
		w.later(there, func() { do() })
		<-ctx.Done()
		n.thaw()
		return none, errSimLost
	}
	if sleep(ctx, there) != nil { // the process crashes
		w.later(there, func() { do() })
		return none, errSimLost
	}
	v, err := do()
	lost = sleep(ctx, back) != nil
	if n.isCut() {
		<-ctx.Done()
		lost = true
	}
	n.thaw()
	if lost {
		return none, errSimLost
	}
	return v, err
}

// simRecords are the records as one process sees them.
type simRecords struct {
	*allocatortest.MemoryRecords // with the watch of this process
	r                            *simRun
}

func (s *simRecords) Load(ctx context.Context, tag string) (allocator.Stored, error) {
	w := s.r.n.w
	return simCall(ctx, s.r, func() (allocator.Stored, error) {
		if old, ok := w.oldRecord(s.r.n, tag); ok {
			return old, nil
		}
		return s.MemoryRecords.Load(context.Background(), tag)
	})
}

func (s *simRecords) Swap(ctx context.Context, t allocator.Tag, revision uint64) (uint64, error) {
	w := s.r.n.w
	w.mu.Lock()
	back := w.recordsBack
	w.mu.Unlock()
	next, err := simCall(ctx, s.r, func() (uint64, error) {
		was, damage := s.MemoryRecords.Load(context.Background(), t.Name)
		next, err := s.MemoryRecords.Swap(context.Background(), t, revision)
		w.trace("%s writes %s over %d: end %d, floor %d, deleted %v, last %d-%d of %s: %d, %v", s.r.name, t.Name,
			revision, t.MaxID, t.Floor, t.Deleted, t.Last.First, t.Last.Last, t.Last.Run, next, err)
		if err != nil {
			w.note("conflict")
			return 0, err
		}
		w.mu.Lock()
		w.repeats = w.repeats || w.recordsBack != back // it has found its revision again, in records that were set back meanwhile
		w.mu.Unlock()
		w.written(s.r, was, damage, t)
		return next, nil
	})
	if errors.Is(err, errSimLost) {
		err = fmt.Errorf("%w: %w", allocator.ErrUncertain, err)
	}
	return next, err
}

// Watch lags, waits while the process is cut off or stands still, and may take a second until it notices that it must
// begin again.
func (s *simRecords) Watch(ctx context.Context, f func(allocator.Update)) error {
	n := s.r.n
	first := false
	return s.MemoryRecords.Watch(ctx, func(u allocator.Update) {
		lag := n.random.upTo(10 * time.Millisecond)
		if !n.w.calm.Load() && (u.First != first && n.random.in(2) || n.random.in(30)) {
			lag = n.random.upTo(2 * time.Second)
			n.w.note("the watch lags")
		}
		for first = u.First; ; lag = n.random.upTo(time.Second) {
			if sleep(ctx, lag); ctx.Err() != nil {
				return
			}
			if n.thaw(); !n.isCut() {
				break
			}
		}
		f(u)
	})
}

func (s *simRecords) Sync(ctx context.Context) error {
	if _, err := simCall(ctx, s.r, func() (struct{}, error) { return struct{}{}, nil }); err != nil {
		return err
	}
	return s.MemoryRecords.Sync(ctx)
}

// simNumbers are the numbers as one process sees them.
type simNumbers struct {
	allocator.Numbers // nil, for what no allocator asks here
	r                 *simRun
}

func (s *simNumbers) Advance(ctx context.Context, tag string, n, step, from int64) (allocator.Range, int64, error) {
	type advanced struct {
		r    allocator.Range
		step int64
	}
	a, err := simCall(ctx, s.r, func() (advanced, error) {
		r, step, err := s.r.n.database().Advance(context.Background(), tag, n, step, from)
		s.r.n.w.trace("%s advances %s from %d: %v, %v", s.r.name, tag, from, r, err)
		return advanced{r, step}, err
	})
	if _, ok := errors.AsType[*allocator.AdvancedError](err); ok {
		s.r.n.w.note("row raised")
	}
	return a.r, a.step, err
}

func (s *simNumbers) Peek(ctx context.Context, tag string) (allocator.Row, error) {
	return simCall(ctx, s.r, func() (allocator.Row, error) { return s.r.n.database().Peek(context.Background(), tag) })
}

func (s *simNumbers) change(ctx context.Context, do func(db *allocatortest.MemoryNumbers) error) error {
	_, err := simCall(ctx, s.r, func() (struct{}, error) { return struct{}{}, do(s.r.n.database()) })
	return err
}

func (s *simNumbers) Add(ctx context.Context, r allocator.Row) error {
	return s.change(ctx, func(db *allocatortest.MemoryNumbers) error { return db.Add(context.Background(), r) })
}

func (s *simNumbers) Raise(ctx context.Context, tag string, end int64, step *int64, text *string) error {
	return s.change(ctx, func(db *allocatortest.MemoryNumbers) error {
		return db.Raise(context.Background(), tag, end, step, text)
	})
}

func (s *simNumbers) Mark(ctx context.Context, tag string, mark int64, kind string) error {
	return s.change(ctx, func(db *allocatortest.MemoryNumbers) error {
		return db.Mark(context.Background(), tag, mark, kind)
	})
}

func (s *simNumbers) Remove(ctx context.Context, tag string, mark int64, kind string) error {
	return s.change(ctx, func(db *allocatortest.MemoryNumbers) error {
		return db.Remove(context.Background(), tag, mark, kind)
	})
}

func (s *simNumbers) Rows(ctx context.Context, f func(allocator.Row)) error {
	rows, err := simCall(ctx, s.r, func() (rows []allocator.Row, err error) {
		err = s.r.n.database().Rows(context.Background(), func(r allocator.Row) { rows = append(rows, r) })
		return rows, err
	})
	for _, r := range rows {
		f(r)
	}
	return err
}

func (s *simNumbers) Check(ctx context.Context) error {
	return s.change(ctx, func(*allocatortest.MemoryNumbers) error { return nil })
}

func (s *simNumbers) Err() error { return nil }

// written notes what a write has replaced, and that no write lowers a record.
func (w *simWorld) written(r *simRun, was allocator.Stored, damage error, t allocator.Tag) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if damage == nil { // what a follower may answer
		w.old[t.Name] = append(w.old[t.Name], was)
	}
	w.old[t.Name] = w.old[t.Name][max(len(w.old[t.Name])-10, 0):]
	if t.Name == simTrend {
		w.claimed = max(w.claimed, t.MaxID)
	}
	if w.recordsBack.IsZero() && (t.MaxID < was.MaxID || t.Floor < was.Floor) { // else a revision may have come twice
		w.failLocked("%s lowers the record of %s from %+v to %+v", r.name, t.Name, was, t)
	}
}

// oldRecord returns now and then what a deposed leader answers, or a follower.
func (w *simWorld) oldRecord(n *simNode, tag string) (allocator.Stored, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.old[tag]
	if w.calm.Load() || len(old) == 0 || !n.random.in(50) {
		return allocator.Stored{}, false
	}
	w.happened["old record"]++
	return slices.Clone(old)[n.random.n(int64(len(old)))], true
}
