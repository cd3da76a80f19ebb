package allocator

import "fmt"

// EvictIdle evicts what may be evicted, as if all tags had been idle for long.
func (a *Allocator) EvictIdle() {
	for _, b := range a.all() {
		a.evict(b)
	}
}

// CheckTroubles compares the counts behind [Allocator.Failing] with those of all tags.
func (a *Allocator) CheckTroubles() error {
	a.mu.RLock()
	defer a.mu.RUnlock()
	var lengths [kindsOfTrouble]int
	stocked := 0
	for _, b := range a.buffers { // all are held at once, so that nothing changes meanwhile
		b.mu.Lock()
		defer b.mu.Unlock()
		if t := b.troubleLocked(); t != nil {
			lengths[t.kind]++
		}
		if b.left > 0 {
			stocked++
		}
	}
	t := &a.troubles
	t.mu.Lock()
	defer t.mu.Unlock()
	for kind, want := range lengths {
		if got := t.of[kind].Len(); got != want {
			return fmt.Errorf("%d tags have trouble %d, want %d", got, kind, want)
		}
	}
	if t.stocked != stocked {
		return fmt.Errorf("%d tags have IDs, want %d", t.stocked, stocked)
	}
	return nil
}
