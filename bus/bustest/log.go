package bustest

import (
	"io"
	"sync"
)

// testLog is the log of a test. What comes after the test's end it drops: the
// testing package panics at that.
type testLog struct {
	mu  sync.Mutex
	out io.Writer // nil: the test has ended
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		return len(p), nil
	}
	return l.out.Write(p)
}

func (l *testLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out = nil
}
