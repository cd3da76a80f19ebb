// Package fresh remembers records of a store for a moment.
package fresh

import (
	"maps"
	"sync"
	"time"
)

// For is how long ago a record may have been read or written when a compare-and-set is based on it.
// After that it is read again, before anything is reserved: while JetStream is unavailable nothing
// should be. Also, a stream that was restored counts its revisions from a lower number, and an old
// one may mean another record.
const For = 100 * time.Millisecond

// most is how many records are remembered at least before those that are not fresh are forgotten.
const most = 1000

// Records are the records of keys that were read or written a moment ago. The methods are safe for
// concurrent use; the zero value is empty.
type Records[R any] struct {
	mu      sync.Mutex
	latest  map[string]known[R]
	sweepAt int // how many records make the next one forget those that are not fresh
}

type known[R any] struct {
	record R
	at     time.Time
}

// Get returns the record of a key, if it is fresh.
func (f *Records[R]) Get(key string) (record R, ok bool) {
	f.mu.Lock()
	k, ok := f.latest[key]
	f.mu.Unlock()
	if !ok || Apart(time.Now(), k.at) > For {
		return record, false
	}
	return k.record, true
}

// Put notes the record of a key. at is the time before it was read or written.
func (f *Records[R]) Put(key string, record R, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.latest == nil {
		f.latest = make(map[string]known[R])
	}
	if len(f.latest) >= max(f.sweepAt, most) {
		maps.DeleteFunc(f.latest, func(_ string, old known[R]) bool { return Apart(at, old.at) > For })
		f.sweepAt = 2 * len(f.latest)
	}
	f.latest[key] = known[R]{record, at}
}

// Forget notes that the record of a key is not known any more.
func (f *Records[R]) Forget(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.latest, key)
}

// Apart is the time from then to now. The monotonic clock stops while a machine sleeps, so the
// longer time of both clocks counts.
func Apart(now, then time.Time) time.Duration {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}
