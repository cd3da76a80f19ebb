package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
)

// harness is what the kit of tests takes for a test. A program has no *testing.T, and the methods here are those
// that the kit calls. All are safe for concurrent use.
type harness struct {
	testing.TB // nil: only for its unexported method
	dir        string
	ctx        context.Context
	fail       context.CancelCauseFunc // ends ctx

	mu       sync.Mutex
	cleanups []func()
	folders  int
}

func newHarness(dir string) *harness {
	ctx, fail := context.WithCancelCause(context.Background())
	return &harness{dir: dir, ctx: ctx, fail: fail}
}

func (h *harness) Helper()                  {}
func (h *harness) Name() string             { return "chaos" }
func (h *harness) Context() context.Context { return h.ctx }
func (h *harness) Failed() bool             { return h.ctx.Err() != nil }
func (h *harness) Log(...any)               {}
func (h *harness) Logf(string, ...any)      {}
func (h *harness) Error(args ...any)        { h.fail(fmt.Errorf("%s", fmt.Sprint(args...))) }
func (h *harness) Errorf(format string, args ...any) {
	h.fail(fmt.Errorf(format, args...))
}

// Fatal ends the calling goroutine, as that of a test does. The run then ends with this error.
func (h *harness) Fatal(args ...any) {
	h.Error(args...)
	runtime.Goexit()
}

func (h *harness) Fatalf(format string, args ...any) {
	h.Errorf(format, args...)
	runtime.Goexit()
}

func (h *harness) Cleanup(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cleanups = append(h.cleanups, f)
}

func (h *harness) TempDir() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.folders++
	dir := fmt.Sprintf("%s/%03d", h.dir, h.folders)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		h.fail(err)
	}
	return dir
}

// close does what was registered last first.
func (h *harness) close() {
	for {
		h.mu.Lock()
		n := len(h.cleanups)
		if n == 0 {
			h.mu.Unlock()
			return
		}
		f := h.cleanups[n-1]
		h.cleanups = h.cleanups[:n-1]
		h.mu.Unlock()
		f()
	}
}
