package generator

import "sync"

// tasks are goroutines that callbacks start, until close. Unlike a
// [sync.WaitGroup] it may be closed while callbacks still come. The zero value
// is ready.
type tasks struct {
	mu     sync.Mutex
	closed bool
	group  sync.WaitGroup
}

// start runs f in a goroutine, or reports false after close.
func (t *tasks) start(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.group.Go(f)
	}
	return !t.closed
}

// close lets no more start and waits for those that run.
func (t *tasks) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.group.Wait()
}
