package allocatortest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// trial is the test of a faulty version: it notes that a case failed, and goes on.
type trial struct {
	testing.TB
	mu       sync.Mutex
	failed   []string
	cleanups []func()
}

func (t *trial) Helper()             {}
func (t *trial) Logf(string, ...any) {}

func (t *trial) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

func (t *trial) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = append(t.failed, fmt.Sprintf(format, args...))
}

func (t *trial) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

// attempt runs one case in virtual time, and returns what failed first.
func attempt(t *testing.T, run func(tb testing.TB)) (failed string) {
	synctest.Test(t, func(t *testing.T) {
		tr := &trial{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			run(tr)
		}()
		<-done
		for i := len(tr.cleanups) - 1; i >= 0; i-- {
			tr.cleanups[i]()
		}
		if len(tr.failed) > 0 {
			failed = tr.failed[0]
		}
	})
	return failed
}
