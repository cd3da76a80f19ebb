package kvstore

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// namesWait is how long a list waits for a watch that lags behind the bucket. Then it asks the server for the
	// names, which takes seconds if there are a million.
	namesWait = time.Second
	// minFresh is how many new names are kept apart at least.
	minFresh = 1000
)

// names are the keys of a bucket, as a watch on it has brought them. Without them each page of a list would ask the server for
// all names. Its methods are safe for concurrent use; the zero value has no watch.
type names struct {
	mu      sync.Mutex
	watched bool                // a watch adds what it sees
	whole   bool                // the watch has brought all that was there when it began
	sorted  []string            // never changed, but replaced
	fresh   map[string]struct{} // those that sorted lacks
	waiters []waiter
}

// waiter waits for so many names.
type waiter struct {
	n    int
	done chan struct{}
}

// begin forgets all names, because a new watch brings them.
func (x *names) begin() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.watched, x.whole, x.sorted, x.fresh = true, false, nil, make(map[string]struct{})
}

// end says that there is no watch any more.
func (x *names) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.watched, x.sorted, x.fresh = false, nil, nil
	for _, w := range x.waiters {
		close(w.done)
	}
	x.waiters = nil
}

// complete says that the watch has brought all that was there when it began.
func (x *names) complete() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.whole = true
	x.mergeLocked()
}

// add notes a name that the watch has brought.
func (x *names) add(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, known := slices.BinarySearch(x.sorted, name); known {
		return
	}
	x.fresh[strings.Clone(name)] = struct{}{} // not the whole subject that it is a part of
	if len(x.fresh) > max(minFresh, len(x.sorted)/8) {
		x.mergeLocked()
	}
	n := len(x.sorted) + len(x.fresh)
	x.waiters = slices.DeleteFunc(x.waiters, func(w waiter) bool {
		if n < w.n {
			return false
		}
		close(w.done)
		return true
	})
}

// mergeLocked sorts the new names in.
func (x *names) mergeLocked() {
	if len(x.fresh) == 0 {
		return
	}
	added := slices.Sorted(maps.Keys(x.fresh))
	merged := make([]string, 0, len(x.sorted)+len(added))
	for _, name := range x.sorted {
		for len(added) > 0 && added[0] < name {
			merged, added = append(merged, added[0]), added[1:]
		}
		merged = append(merged, name)
	}
	x.sorted = append(merged, added...)
	clear(x.fresh)
}

// atLeast returns all names in their order, when there are n. ok is false if there is no watch, or if it does not bring so many
// within [namesWait]. While a watch reads a bucket for the first time it waits until the context is done.
func (x *names) atLeast(ctx context.Context, n int) (sorted []string, ok bool) {
	patience := time.NewTimer(namesWait)
	defer patience.Stop()
	for {
		x.mu.Lock()
		if !x.watched {
			x.mu.Unlock()
			return nil, false
		}
		if len(x.sorted)+len(x.fresh) >= n {
			x.mergeLocked()
			sorted = x.sorted
			x.mu.Unlock()
			return sorted, true
		}
		w, whole := waiter{n, make(chan struct{})}, x.whole
		x.waiters = append(x.waiters, w)
		x.mu.Unlock()
		select {
		case <-w.done:
			continue
		case <-patience.C:
			x.leave(w)
			if whole {
				return nil, false
			}
			patience.Reset(namesWait)
		case <-ctx.Done():
			x.leave(w)
			return nil, false
		}
	}
}

// leave removes a waiter.
func (x *names) leave(w waiter) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.waiters = slices.DeleteFunc(x.waiters, func(other waiter) bool { return other.done == w.done })
}
