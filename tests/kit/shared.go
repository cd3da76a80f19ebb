package kit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/internal/testkit"
)

// shared is the one server of its kind in a test binary. Its methods may be called concurrently.
type shared[S io.Closer] struct {
	start func(dir string) (S, error)

	mu      sync.Mutex
	dir     string // outlives the test that happens to be first
	started bool   // or tried, which is done once
	server  S
	err     error
}

// get starts the server on the first call.
func (s *shared[S]) get(tb testing.TB) S {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		s.started = true
		if s.dir, s.err = os.MkdirTemp("", "leaf-shared-"); s.err == nil {
			s.server, s.err = s.start(s.dir)
		}
	}
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.server
}

// close ends the server if there is one, and removes its data.
func (s *shared[S]) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.started && s.err == nil {
		err = s.server.Close()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// Main runs the tests of a package, ends the shared servers, and returns the exit status:
//
//	func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }
func Main(m *testing.M) int {
	testkit.AtOnce(8) // tests of processes wait more than they compute
	status := m.Run()
	if err := Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = max(status, 1)
	}
	return status
}

// Close ends the shared servers and removes the programs that were built, for packages that cannot use [Main].
// Nothing of this package works after it.
func Close() error {
	return errors.Join(sharedMariaDB.close(), sharedZooKeeper.close(), os.RemoveAll(programs.dir))
}

// ErrPortTaken is the error of a server whose port another process has.
var ErrPortTaken = errors.New("another process has the port")

// onFreePorts calls start with n free addresses, and with others if it returns ErrPortTaken: another process
// can be faster than the server to take one.
func onFreePorts(n int, start func(addrs []string) error) error {
	var err error
	for range 10 {
		var addrs []string
		for range n {
			l, listenErr := testkit.Listen()
			if listenErr != nil {
				return listenErr
			}
			addrs = append(addrs, l.Addr().String())
			l.Close()
		}
		if err = start(addrs); !errors.Is(err, ErrPortTaken) {
			return err
		}
	}
	return err
}
