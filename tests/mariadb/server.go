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
	"time"

	"github.com/go-sql-driver/mysql"
)

// patience is how long a server may take to start, to stop or to answer. It is
// long because it is only used up where something is broken.
const patience = 40 * time.Second

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
	process *process // the last one
	frozen  bool
}

// Start makes a data folder in a new folder in dir, runs a server with it on a
// free port, and returns when it answers queries. The options are further
// arguments of mariadbd, for every run. If Start fails, nothing is left
// running. Whoever made dir removes it after Close.
func Start(dir string, options ...string) (*Server, error) {
	folder, err := newFolder(dir)
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
	for range 10 {
		if s.addr, err = freeAddr(); err != nil {
			return nil, err
		}
		// Another server can be faster than this one to take the port.
		if err = s.Run(); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// newFolder makes a folder in dir and returns the path by which the server
// will know it, whatever its working folder.
func newFolder(dir string) (string, error) {
	folder, err := os.MkdirTemp(dir, "mariadb-")
	if err != nil {
		return "", err
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(folder)
}

func (s *Server) data() string { return filepath.Join(s.folder, "data") }

// temp is a folder of the server's own: when one starts, it removes the
// temporary tables that it finds, also those of servers that run.
func (s *Server) temp() string { return filepath.Join(s.folder, "tmp") }

// Run starts a server that has ended once more: same data, same address. The
// options are further arguments of mariadbd for this run only. It returns when
// the server answers queries; what a kill left undone is recovered by then.
func (s *Server) Run(options ...string) error {
	if s.process != nil && !s.process.ended() {
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
	s.process, s.frozen = p, false
	if err := s.awaitReady(); err != nil {
		p.kill()
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
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	looks := time.NewTicker(10 * time.Millisecond)
	defer looks.Stop()
	for {
		data, err := dataFolder(ctx, db)
		if err == nil && data == s.data() {
			return nil
		}
		select {
		case <-s.process.exited:
			return s.process.failure()
		case <-ctx.Done():
			return fmt.Errorf("mariadbd does not answer after %v (%v); its log ends with:\n%s", patience, err, s.process.logTail())
		case <-looks.C:
		}
	}
}

// dataFolder asks a server for its data folder. Whatever else has the port may
// accept connections and say nothing, so an answer must come soon.
func dataFolder(ctx context.Context, db *sql.DB) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var data string
	err := db.QueryRowContext(ctx, "SELECT @@datadir").Scan(&data)
	return filepath.Clean(data), err
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
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := db.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// Stop shuts the server down and waits for its end. One that does not obey is
// killed, which is an error. A frozen one must thaw before.
func (s *Server) Stop() error {
	if s.frozen {
		return errors.New("mariadbd is frozen: Thaw it before Stop")
	}
	return s.process.stop()
}

// Kill ends the server at once, as kill -9 does, and waits for its end. It is
// an error if the server had ended before.
func (s *Server) Kill() error {
	if s.process.ended() {
		return s.process.failure()
	}
	s.process.kill()
	return nil
}

// Freeze stops every thread of the server where it is, as if its machine hung:
// connections stay open and nothing is answered, until Thaw.
func (s *Server) Freeze() error {
	if s.frozen {
		return nil
	}
	if err := s.process.freeze(); err != nil {
		return err
	}
	s.frozen = true
	return nil
}

// Thaw lets a frozen server go on; it then answers what it was asked meanwhile.
func (s *Server) Thaw() error {
	if err := s.process.thaw(); err != nil {
		return err
	}
	s.frozen = false
	return nil
}

// Close ends the server at once, in whatever state it is, and waits for its
// end. Closing again does nothing. The data stays.
func (s *Server) Close() error {
	s.process.kill()
	return nil
}
