package mariadb

import (
	"fmt"
	"os"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/leafbus/leafbus/tests/daemon"
)

// serverEnv is the DSN of a server for [NewDatabase], with an account that may
// create databases.
const serverEnv = "LEAF_TEST_MYSQL"

// shared is the one server of a test binary.
var shared = daemon.Shared[*Server]{Start: func(dir string) (*Server, error) { return Start(dir) }}

// New starts a server that ends with the test. It is for tests that kill,
// freeze or configure it; others share one, see [NewDatabase].
func New(tb testing.TB, options ...string) *Server {
	tb.Helper()
	s, err := Start(tb.TempDir(), options...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// Shared is the server that all tests of a binary share. The first call starts
// it; TestMain ends it with [Main] or [CloseShared]. Leave it running. A test
// that counts goroutines begins to do so afterwards.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	return shared.Get(tb)
}

// CloseShared ends the shared server if there is one, and removes its data.
func CloseShared() error { return shared.Close() }

// Main runs the tests, closes the shared server, and returns the exit status:
//
//	func TestMain(m *testing.M) { os.Exit(mariadb.Main(m)) }
func Main(m *testing.M) int { return daemon.Main(m, CloseShared) }

// NewDatabase creates an empty database that is dropped when the test ends,
// and returns its DSN. It is on the shared server, or on that of the
// environment variable LEAF_TEST_MYSQL, whose parameters the DSN then has.
func NewDatabase(tb testing.TB) (dsn string) {
	tb.Helper()
	cfg, err := databaseServer(tb)
	if err != nil {
		tb.Fatal(err)
	}
	server, name := cfg.FormatDSN(), randomName()
	if err := execute(server, "CREATE DATABASE "+name); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := execute(server, "DROP DATABASE "+name); err != nil {
			tb.Errorf("%v; does the test leave a transaction open?", err)
		}
	})
	cfg.DBName = name
	return cfg.FormatDSN()
}

func databaseServer(tb testing.TB) (*mysql.Config, error) {
	tb.Helper()
	dsn := os.Getenv(serverEnv)
	if dsn == "" {
		return mysql.ParseDSN(Shared(tb).DSN(""))
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("%s is not a DSN such as root:secret@tcp(127.0.0.1:3306)/: %w", serverEnv, err)
	}
	return cfg, nil
}
