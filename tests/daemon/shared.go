package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/internal/testkit"
)

// Shared is the one server of its kind in a test binary. Its methods may be
// called concurrently.
type Shared[S io.Closer] struct {
	Start func(dir string) (S, error)

	mu      sync.Mutex
	dir     string // outlives the test that happens to be first
	started bool   // or tried, which is done once
	server  S
	err     error
}

// Get starts the server on the first call. [Shared.Close] ends it.
func (s *Shared[S]) Get(tb testing.TB) S {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		s.started = true
		if s.dir, s.err = os.MkdirTemp("", "leaf-shared-"); s.err == nil {
			s.server, s.err = s.Start(s.dir)
		}
	}
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.server
}

// Close ends the server if there is one, and removes its data.
func (s *Shared[S]) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.started && s.err == nil {
		err = s.server.Close()
	}
	dir := s.dir
	s.dir, s.started, s.err = "", false, nil
	return errors.Join(err, os.RemoveAll(dir))
}

// Main runs the tests, calls what closes the shared servers, and returns the
// exit status for TestMain.
func Main(m *testing.M, closers ...func() error) int {
	testkit.AtOnce(6) // tests of servers wait more than they compute
	status := m.Run()
	for _, closeShared := range closers {
		if err := closeShared(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = max(status, 1)
		}
	}
	return status
}
