package kit

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
)

const (
	// mysqlEnv is the DSN of a server for [NewDatabase], with an account that may create databases.
	mysqlEnv = "LEAF_TEST_MYSQL"
	// logSize must be known when the data folder is made, or each would begin with 96 MB.
	logSize = "--innodb-log-file-size=4M"
)

var sharedMariaDB = shared[*MariaDB]{start: func(dir string) (*MariaDB, error) { return StartMariaDB(dir) }}

// MariaDB is a server on 127.0.0.1 that keeps what it committed, as one in production does. Its account root
// has all privileges and no password. The methods of its Process kill and freeze it.
type MariaDB struct {
	*Process
	folder  string // with the data, the temporary tables and the log
	options []string
	addr    string
}

// NewMariaDB starts a server that ends with the test, for tests that kill, freeze or configure it. Others
// share one: see [NewDatabase]. The options are further arguments of mariadbd.
func NewMariaDB(tb testing.TB, options ...string) *MariaDB {
	tb.Helper()
	s, err := StartMariaDB(tb.TempDir(), options...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() }) // of its last run
	return s
}

// StartMariaDB is [NewMariaDB] in a new folder in dir, until Close.
func StartMariaDB(dir string, options ...string) (*MariaDB, error) {
	folder, err := newFolder(dir, "mariadb-")
	if err != nil {
		return nil, err
	}
	s := &MariaDB{folder: folder, options: options}
	// A starting server removes the temporary tables that it finds, also those of running ones.
	if err := os.Mkdir(s.path("tmp"), 0o700); err != nil {
		return nil, err
	}
	install, err := mariadbCommand("mariadb-install-db", "--datadir="+s.path("data"), "--tmpdir="+s.path("tmp"),
		"--auth-root-authentication-method=normal", "--skip-test-db", logSize,
		"--rpm") // else, as root, it changes the owner of a plugin of the system's own server
	if err != nil {
		return nil, err
	}
	if out, err := install.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
	}
	return s, onFreePorts(1, func(addrs []string) error {
		s.addr = addrs[0]
		return s.Run()
	})
}

func (s *MariaDB) path(name string) string { return filepath.Join(s.folder, name) }

// mariadbCommand is one of MariaDB's programs that reads no configuration files. Debian keeps servers where
// the PATH often does not lead.
func mariadbCommand(name string, args ...string) (*exec.Cmd, error) {
	first := []string{"--no-defaults"} // it counts only as the first
	if os.Geteuid() == 0 {
		first = append(first, "--user=root") // mariadbd refuses root otherwise
	}
	for _, path := range []string{name, "/usr/sbin/" + name, "/usr/local/sbin/" + name} {
		if found, err := exec.LookPath(path); err == nil {
			return exec.Command(found, append(first, args...)...), nil
		}
	}
	return nil, fmt.Errorf("%s is not installed: make test installs it", name)
}

// Run starts a server that has ended once more: same data, same address. The options count for this run only.
// It returns when the server answers queries.
func (s *MariaDB) Run(options ...string) error {
	if s.Process != nil && !s.Ended() {
		return errors.New("mariadbd runs already: Stop or Kill it first")
	}
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return err
	}
	// Socket and pid are relative to the data folder, whose path can be longer than that of a socket may be.
	cmd, err := mariadbCommand("mariadbd", slices.Concat([]string{
		"--datadir=" + s.path("data"), "--tmpdir=" + s.path("tmp"), "--bind-address=" + host, "--port=" + port,
		"--socket=socket", "--pid-file=pid", logSize, "--innodb-buffer-pool-size=16M", "--performance-schema=OFF",
		"--skip-log-bin", "--skip-name-resolve",
	}, s.options, options)...)
	if err != nil {
		return err
	}
	s.Process, err = Launch(Program{
		Name: "mariadbd", Command: cmd, Log: s.path("error.log"), PortTaken: "Bind on TCP/IP port",
	})
	if err != nil {
		return err
	}
	db, err := openMySQL(s.DSN(""))
	if err != nil {
		return err
	}
	defer db.Close()
	err = s.Await(func(ctx context.Context) error {
		var data string
		if err := db.QueryRowContext(ctx, "SELECT @@datadir").Scan(&data); err != nil {
			return err
		}
		if filepath.Clean(data) != s.path("data") {
			return fmt.Errorf("another server, of %s, has the port", data)
		}
		return nil
	})
	if err != nil {
		s.Process.Close()
	}
	return err
}

// Close ends the server at once. The data stays.
func (s *MariaDB) Close() error {
	s.Process.Close()
	return nil
}

// Addr is the server's host:port, the same over all runs.
func (s *MariaDB) Addr() string { return s.addr }

// DSN is the data source name of a database for go-sql-driver/mysql; an empty name is no database.
func (s *MariaDB) DSN(database string) string {
	return fmt.Sprintf("root@tcp(%s)/%s", s.addr, database)
}

// Database creates an empty database with a name of its own, and returns its DSN.
func (s *MariaDB) Database() (string, error) {
	name := databaseName()
	return s.DSN(name), execute(s.DSN(""), "CREATE DATABASE "+name)
}

// NewDatabase creates an empty database that is dropped when the test ends, and returns its DSN. It is on a
// server that all tests of a binary share, or on that of the environment variable LEAF_TEST_MYSQL.
func NewDatabase(tb testing.TB) (dsn string) {
	tb.Helper()
	server := os.Getenv(mysqlEnv)
	if server == "" {
		server = sharedMariaDB.get(tb).DSN("")
	}
	cfg, err := mysql.ParseDSN(server)
	if err != nil {
		tb.Fatalf("%s is not a DSN such as root:secret@tcp(127.0.0.1:3306)/: %v", mysqlEnv, err)
	}
	cfg.DBName = databaseName()
	if err := execute(server, "CREATE DATABASE "+cfg.DBName); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := execute(server, "DROP DATABASE "+cfg.DBName); err != nil {
			tb.Errorf("%v; does the test leave a transaction open?", err)
		}
	})
	return cfg.FormatDSN()
}

// databaseName needs no quotes in SQL.
func databaseName() string { return "leaf_test_" + strings.ToLower(rand.Text()[:12]) }

// openMySQL returns connections that do not print what breaks them.
func openMySQL(dsn string) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func execute(dsn, statement string) error {
	db, err := openMySQL(dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	if _, err := db.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// SQL runs statements in a database, one after the other.
func SQL(tb testing.TB, dsn string, statements ...string) {
	tb.Helper()
	for _, statement := range statements {
		if err := execute(dsn, statement); err != nil {
			tb.Fatal(err)
		}
	}
}
