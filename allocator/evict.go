package allocator

// evictAfter is how many sweeps in a row must see no use of a tag before it is dropped
// from memory: a day. A tag that is used once a day, by a job at night say, keeps its step.
const evictAfter = 24*12 + 6

// evict drops b from memory, with the IDs that it has: they become a gap, and the next
// request loads the tag again. What the checks of the store need stays in the marks.
// A tag stays while a request or a refill is under way, and until its alerts are over.
func (a *Allocator) evict(b *buffer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || b.loading || b.waiters.n > 0 || b.regressed != nil || b.failure != nil {
		return
	}
	if b.floor > 0 {
		a.cfg.Marks.Observe(b.tag, b.floor) // before b is gone: Seen reads the buffer, then the marks
	}
	a.dropLocked(b)
}
