// Package mariadb runs private MariaDB servers for tests and benchmarks. They
// are real ones that can be killed, frozen and started again, and that keep
// what they have committed as one in production does.
package mariadb

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/leafbus/leafbus/tests/daemon"
)

// small makes a server start fast. What a commit promises stays as it is.
var small = []string{
	logSize, "--innodb-buffer-pool-size=16M", "--performance-schema=OFF", "--skip-log-bin", "--skip-name-resolve",
}

// logSize is known when the data folder is made, or each would begin with 96 MB.
const logSize = "--innodb-log-file-size=4M"

// Server is a MariaDB server on 127.0.0.1. Its account root has all privileges
// and no password. Addr, DSN and Database may be called concurrently; what
// starts, stops and signals the server may not.
type Server struct {
	folder  string // with the data and the log
	options []string
	addr    string
	process *daemon.Process // the last one
}

// Start makes a data folder in a new folder in dir, runs a server with it on a
// free port, and returns when it answers queries. The options are further
// arguments of mariadbd, for every run. If Start fails, nothing is left
// running. Whoever made dir removes it after Close.
func Start(dir string, options ...string) (*Server, error) {
	folder, err := daemon.NewFolder(dir, "mariadb-")
	if err != nil {
		return nil, err
	}
	s := &Server{folder: folder, options: options}
	if err := os.Mkdir(s.temp(), 0o700); err != nil {
		return nil, err
	}
	if err := install(s.data(), s.temp()); err != nil {
		return nil, err
	}
	err = daemon.OnFreePorts(1, func(addrs []string) error {
		s.addr = addrs[0]
		return s.Run()
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Server) data() string { return filepath.Join(s.folder, "data") }

// temp is a folder of the server's own: when one starts, it removes the
// temporary tables that it finds, also those of servers that run.
func (s *Server) temp() string { return filepath.Join(s.folder, "tmp") }

// Run starts a server that has ended once more: same data, same address. The
// options are further arguments of mariadbd for this run only. It returns when
// the server answers queries; what a kill left undone is recovered by then.
func (s *Server) Run(options ...string) error {
	if s.process != nil && !s.process.Ended() {
		return errors.New("mariadbd runs already: Stop or Kill it first")
	}
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return err
	}
	args := []string{
		"--datadir=" + s.data(), "--tmpdir=" + s.temp(), "--bind-address=" + host, "--port=" + port,
		// They are relative to the data folder, whose path can be longer than
		// that of a socket may be.
		"--socket=socket", "--pid-file=pid",
	}
	for _, more := range [][]string{small, s.options, options} {
		args = append(args, more...)
	}
	p, err := launch(filepath.Join(s.folder, "error.log"), args)
	if err != nil {
		return err
	}
	s.process = p
	if err := s.awaitReady(); err != nil {
		p.Close()
		return err
	}
	return nil
}

// awaitReady waits until the server answers queries. It asks for the data
// folder because another server may have taken the port.
func (s *Server) awaitReady() error {
	db, err := open(s.DSN(""))
	if err != nil {
		return err
	}
	defer db.Close()
	return s.process.Await(func(ctx context.Context) error {
		var data string
		if err := db.QueryRowContext(ctx, "SELECT @@datadir").Scan(&data); err != nil {
			return err
		}
		if filepath.Clean(data) != s.data() {
			return fmt.Errorf("another server, of %s, has the port", data)
		}
		return nil
	})
}

// open returns connections that do not print what breaks them.
func open(dsn string) (*sql.DB, error) {
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

// Addr is the server's host:port. It stays the same over runs.
func (s *Server) Addr() string { return s.addr }

// DSN is the data source name of a database for go-sql-driver/mysql, with no
// parameters; an empty name is no database.
func (s *Server) DSN(database string) string {
	return fmt.Sprintf("root@tcp(%s)/%s", s.addr, database)
}

// Database creates an empty database with a name of its own, and returns its DSN.
func (s *Server) Database() (string, error) {
	name := randomName()
	if err := execute(s.DSN(""), "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	return s.DSN(name), nil
}

// randomName needs no quotes in SQL.
func randomName() string { return "leaf_test_" + strings.ToLower(rand.Text()[:12]) }

// execute runs a statement on a connection of its own.
func execute(dsn, statement string) error {
	db, err := open(dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), daemon.Patience)
	defer cancel()
	if _, err := db.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// Stop shuts the server down and waits for its end. One that does not obey is
// killed, which is an error. A frozen one must thaw before.
func (s *Server) Stop() error { return s.process.Stop() }

// Kill ends the server at once, as kill -9 does, and waits for its end. It is
// an error if the server had ended before.
func (s *Server) Kill() error { return s.process.Kill() }

// Freeze stops every thread of the server where it is, as if its machine hung:
// connections stay open and nothing is answered, until Thaw.
func (s *Server) Freeze() error { return s.process.Freeze() }

// Thaw lets a frozen server go on; it then answers what it was asked meanwhile.
func (s *Server) Thaw() error { return s.process.Thaw() }

// Close ends the server at once, in whatever state it is, and waits for its
// end. Closing again does nothing. The data stays.
func (s *Server) Close() error {
	s.process.Close()
	return nil
}
