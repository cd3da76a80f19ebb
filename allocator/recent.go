package allocator

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leafbus/leafbus/allocator/disk"
)

const (
	// recentFor is how long a tag counts as used.
	recentFor = 24 * time.Hour
	// recentUnit is how exactly the time of its last use is kept: by the hour, or
	// steady use would write the file again at every sweep.
	recentUnit = time.Hour
	// sweepEvery is how often the allocator checks which tags were used. kill -9 loses at
	// most what was used since. The idle time of a tag is known to this precision.
	sweepEvery = 5 * time.Minute
	// recentWait is how long a start and a stop wait for the file.
	recentWait = 5 * time.Second
)

// recent remembers, in a file, the tags from which IDs were taken in the last
// day, so that the next start can load them ahead: a line each, "crc32 tag
// time", in Unix seconds.
//
// It is a hint and no more. A file that is lost or damaged costs the first
// requests of some tags a refill.
type recent struct {
	path string
	disk *disk.Runner

	mu      sync.Mutex
	used    map[string]int64 // the hour of the last use
	changed bool             // since the file was written
}

// newRecent keeps the tags in the file at path; empty: it keeps none.
func newRecent(path string) recent {
	return recent{path: path, disk: disk.NewRunner(recentWait), used: make(map[string]int64)}
}

// read takes in the file. The error is for the log: what could be read counts.
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

// forget drops a tag that is no more.
func (r *recent) forget(tag string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.used[tag]; ok {
		delete(r.used, tag)
		r.changed = true
	}
}

// save writes the file anew if anything changed.
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

// expireLocked drops the tags that were not used for a day. Times in the
// future, which a clock left that has been set back since, become now.
func (r *recent) expireLocked(now time.Time) {
	hour := now.Truncate(recentUnit)
	oldest := hour.Add(-recentFor).Unix() // whoever was used in this hour may have been so within a day
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

// keepMemory loads the tags of the last day ahead, and then looks for use until
// the allocator is closed.
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

// sweep notes from which tags IDs were taken since the last sweep, and evicts tags that
// were idle for long. Requests do not note it themselves, because that would slow each one.
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
		idle := b.idle >= evictAfter
		b.mu.Unlock()
		switch {
		case used:
			a.recent.use(b.tag, now)
		case idle:
			a.evict(b)
		}
	}
	if err := a.recent.save(now); err != nil {
		a.cfg.Log.Warn("the tags used in the last day cannot be written", "error", err)
	}
}
