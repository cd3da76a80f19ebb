package zookeeper

import (
	"os"
	"testing"

	"github.com/leafbus/leafbus/tests/daemon"
)

// hostsEnv is the addresses of a server or ensemble for [Hosts].
const hostsEnv = "LEAF_TEST_ZOOKEEPER"

// shared is the one server of a test binary.
var shared = daemon.Shared[*Server]{Start: start}

// New starts a server that ends with the test. It is for tests that kill or
// freeze it; others share one, see [Hosts].
func New(tb testing.TB) *Server {
	tb.Helper()
	s, err := start(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.kill)
	return s
}

// Hosts is the addresses, with commas between them, of the environment variable
// LEAF_TEST_ZOOKEEPER, or else that of a server that all tests of a binary
// share. The first call starts it; TestMain ends it with [Main] or
// [CloseShared]. It may have nodes already, so a test makes its own beneath one
// whose name nobody else has. A test that counts goroutines begins to do so
// afterwards.
func Hosts(tb testing.TB) string {
	tb.Helper()
	if hosts := os.Getenv(hostsEnv); hosts != "" {
		return hosts
	}
	return shared.Get(tb).Addr()
}

// CloseShared ends the shared server if there is one, and removes its data.
func CloseShared() error { return shared.Close() }

// Main runs the tests, closes the shared server, and returns the exit status:
//
//	func TestMain(m *testing.M) { os.Exit(zookeeper.Main(m)) }
func Main(m *testing.M) int { return daemon.Main(m, CloseShared) }
