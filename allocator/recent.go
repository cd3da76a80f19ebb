package allocator

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/allocator/disk"
)

const (
	// recentFor is how long a tag counts as used.
	recentFor = 24 * time.Hour
	// recentUnit is the precision of the time of its last use. A finer one would have
	// steady use write the file at every sweep.
	recentUnit = time.Hour
	// sweepEvery is how often the allocator checks which tags were used. kill -9 loses at
	// most what was used since. The idle time of a tag is known to this precision.
	sweepEvery = 5 * time.Minute
	// evictAfter is how many sweeps in a row must see no use of a tag before it leaves
	// memory: a day. A tag that is used once a day, by a job at night say, keeps its step.
	evictAfter = 24*12 + 6
	// recentWait is how long a start and a stop wait for the file.
	recentWait = 5 * time.Second
	// aheadAtOnce bounds the tags that are loaded ahead at a time. Refills for which
	// requests wait have most of maxRefills to themselves.
	aheadAtOnce = 4
	// aheadFailures in a row end it: a store that is away is not asked for every tag.
	aheadFailures = 8
)

// recent remembers, in a file, the tags from which IDs were taken in the last
// day, so that the next start can load them ahead: a line each, "crc32 tag
// time", in Unix seconds.
//
// It is only a hint: without the file, the first requests of some tags wait for a refill.
type recent struct {
	path string
	disk *disk.Runner

	mu      sync.Mutex
	used    map[string]int64 // the hour of the last use
	changed bool             // since the file was written
}

// newRecent keeps the tags in the file at path. Without a path it keeps none.
func newRecent(path string) recent {
	return recent{path: path, disk: disk.NewRunner(recentWait), used: make(map[string]int64)}
}

// read takes in the file. The error is for the log: the lines that could be read count.
func (r *recent) read(now time.Time) error {
	return r.disk.Run(func() error {
		used, err := readLines(r.path)
		r.mu.Lock()
		defer r.mu.Unlock()
		for tag, at := range used { // a disk that hung may answer late
			r.used[tag] = max(r.used[tag], at)
		}
		r.expireLocked(now)
		return err
	})
}

// tags returns all tags, those that were used last first.
func (r *recent) tags() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Keys(r.used), func(x, y string) int {
		return cmp.Or(cmp.Compare(r.used[y], r.used[x]), strings.Compare(x, y))
	})
}

// use notes that IDs of tag were taken.
func (r *recent) use(tag string, now time.Time) {
	if r.path == "" {
		return
	}
	hour := now.Truncate(recentUnit).Unix()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used[tag] != hour {
		r.used[tag] = hour
		r.changed = true
	}
}

// forget removes a tag that does not exist any more.
func (r *recent) forget(tag string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.used[tag]; ok {
		delete(r.used, tag)
		r.changed = true
	}
}

// save replaces the file if anything changed.
func (r *recent) save(now time.Time) error {
	r.mu.Lock()
	r.expireLocked(now)
	if !r.changed {
		r.mu.Unlock()
		return nil
	}
	used := maps.Clone(r.used)
	r.changed = false
	r.mu.Unlock()
	err := r.disk.Run(func() error { return writeLines(r.path, used) })
	if err != nil {
		r.mu.Lock()
		r.changed = true // the next sweep tries again
		r.mu.Unlock()
	}
	return err
}

// expireLocked removes the tags that were not used for a day. A time in the future, from
// before the clock was set back, becomes the present hour.
func (r *recent) expireLocked(now time.Time) {
	hour := now.Truncate(recentUnit)
	oldest := hour.Add(-recentFor).Unix() // a use in this hour may be less than a day ago
	for tag, at := range r.used {
		switch {
		case at < oldest:
			delete(r.used, tag)
			r.changed = true
		case at > hour.Unix():
			r.used[tag] = hour.Unix()
			r.changed = true
		}
	}
}

// keepMemory loads the tags of the last day ahead. Then it sweeps until the allocator is
// closed.
func (a *Allocator) keepMemory() {
	if a.recent.path != "" {
		if err := a.recent.read(time.Now()); err != nil {
			a.cfg.Log.Warn("the tags used in the last day cannot be read; not all are loaded ahead", "error", err)
		}
		tags := a.recent.tags()
		a.wg.Go(func() { a.loadAhead(tags) })
	}
	for pause(a.ctx, sweepEvery, nil) {
		a.sweep()
	}
}

// sweep saves which tags were used since the last sweep, and evicts those that were idle for
// a day. Requests do not note their use themselves, because that would slow each one.
func (a *Allocator) sweep() {
	now := time.Now()
	for _, b := range a.all() {
		b.mu.Lock()
		used := b.taken != b.swept
		b.swept = b.taken
		b.idle++
		if used {
			b.idle = 0
		}
		idle, strict := b.idle >= evictAfter, b.strict != nil
		b.mu.Unlock()
		switch {
		case used && !strict: // nothing of a strict tag can be loaded ahead
			a.recent.use(b.tag, now)
		case idle:
			a.evict(b)
		}
	}
	if err := a.recent.save(now); err != nil {
		a.cfg.Log.Warn("the tags used in the last day cannot be written", "error", err)
	}
}

// evict drops b with the IDs that it has: they become a gap, and the next request loads the
// tag again. What the checks of the store need stays in the marks. A tag stays while a
// request or a refill is under way, and until its alerts are over.
func (a *Allocator) evict(b *buffer) {
	a.dropIf(b, func() bool {
		return !b.loading && b.waiters.n == 0 && b.regressed == nil && b.failure == nil
	})
}

// loadAhead reserves one segment for each of the tags that was never loaded, a
// few at a time and in their order. It tries once and reports no failures, because no
// request waits: one that comes starts a refill.
//
// A tag that is not used then keeps its old time. So each start within the day
// costs it a segment, and later ones cost none.
func (a *Allocator) loadAhead(tags []string) {
	slots := make(chan struct{}, aheadAtOnce)
	var failures atomic.Int64 // in a row
	for _, tag := range tags {
		if a.acquire(slots) != nil || failures.Load() >= aheadFailures {
			return
		}
		b, p := a.claimAhead(tag)
		if b == nil {
			<-slots
			continue
		}
		a.wg.Go(func() {
			err := a.reserve(b, p)
			switch {
			case errors.Is(err, ErrUnknownTag):
				a.recent.forget(tag)
				failures.Store(0)
			case err == nil, errors.Is(err, ErrExhausted), errors.Is(err, ErrPaused), errors.Is(err, ErrDamaged), errors.Is(err, ErrLocked), errors.Is(err, errDiscarded):
				failures.Store(0)
			case failures.Add(1) == aheadFailures:
				a.cfg.Log.Warn("the store fails: no more tags are loaded ahead", "error", err)
			}
			<-slots
			a.endAhead(b, err)
		})
	}
}

// claimAhead returns the buffer of a tag that was never loaded, which the caller
// then owns as a refill does, and what to reserve; nil if nothing.
func (a *Allocator) claimAhead(tag string) (*buffer, plan) {
	b, err := a.buffer(tag)
	if err != nil {
		return nil, plan{} // closed
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || b.loading || !b.refilled.IsZero() {
		return nil, plan{}
	}
	b.beginRefillLocked()
	return b, plan{n: 1} // the store reserves the tag's step
}

// endAhead goes on as a refill, for the requests that came meanwhile; without any, that
// ends at once.
func (a *Allocator) endAhead(b *buffer, err error) {
	if regressed, ok := errors.AsType[*RegressedError](err); ok {
		a.awaitOperator(b, regressed)
	}
	a.refill(b)
	if err != nil {
		a.forget(b)
	}
}
