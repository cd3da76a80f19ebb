package schema

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync/atomic"

	"github.com/uptrace/bun"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/idspace"
)

// DefaultTable is the name that Leaf gives the table of the tags.
const DefaultTable = "leaf_alloc"

// tableName is what a table may be called without quotes, in any database.
var tableName = regexp.MustCompile(`^[0-9A-Za-z_$]{1,64}$`)

func checkTable(name string) error {
	if !tableName.MatchString(name) {
		return fmt.Errorf("%q cannot be the name of a table: want up to 64 of [A-Za-z0-9_$], without the "+
			"database, which the DSN names", name)
	}
	return nil
}

// Config says which database is used, and how.
type Config struct {
	// DSN is that of github.com/go-sql-driver/mysql,
	// user:password@tcp(host:3306)/database. What safety needs is forced over it.
	DSN string
	// Reread returns the DSN again for each new connection; nil: it does not change.
	Reread func() (string, error)
	TLS    TLS
	Table  string // of the tags. Default: DefaultTable
	// Check makes Open create nothing: it refuses where a table is missing.
	Check bool
	Log   *slog.Logger // default: slog.Default
}

// Database is a database that has the tags in a table, as Leaf has it. It implements
// [allocator.Numbers]. Until [Database.Open] has returned without an error, its methods return
// [allocator.ErrUnavailable].
type Database struct {
	cfg    Config
	access *access
	pool   *sql.DB

	fit   atomic.Pointer[opened] // as it was last examined; nil: it is not open
	owner atomic.Pointer[owner]  // nil: it is not known to be this installation's
	away  atomic.Pointer[error]  // why the last call failed; nil: it did not
}

// opened is what is known of a database that is open.
type opened struct {
	db *bun.DB
	layout
}

var _ allocator.Numbers = (*Database)(nil)

// New returns a database that is not open. An error says that the DSN cannot be used; it does not
// quote it.
func New(cfg Config) (*Database, error) {
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	cfg.Table = cmp.Or(cfg.Table, DefaultTable)
	if err := checkTable(cfg.Table); err != nil {
		return nil, err
	}
	d := &Database{cfg: cfg}
	d.access = &access{cfg: cfg, owner: &d.owner}
	if err := d.access.read(cfg.DSN); err != nil {
		return nil, err
	}
	d.pool = sql.OpenDB(d.access)
	d.pool.SetMaxOpenConns(maxConns)
	d.pool.SetMaxIdleConns(maxConns)
	d.pool.SetConnMaxLifetime(connLifetime)
	return d, nil
}

// Close closes the connections.
func (d *Database) Close() error { return d.pool.Close() }

// Open makes sure that the database can be reached and its tables are fit. It creates
// missing tables, and changes no existing one. It may be called until it succeeds, and
// after; an error that matches [allocator.ErrRefused] will stay.
func (d *Database) Open(ctx context.Context) error {
	if d.fit.Load() != nil {
		return nil
	}
	_, err := d.Migrate(ctx)
	return err
}

// Err implements [allocator.Numbers]. An error that matches [allocator.ErrRefused] stays: the
// database has another owner.
func (d *Database) Err() error {
	if err := d.away.Load(); err != nil {
		return *err
	}
	return nil
}

// found notes that the database answers, unless it was refused.
func (d *Database) found() {
	if err := d.away.Load(); err != nil && !errors.Is(*err, allocator.ErrRefused) {
		d.away.CompareAndSwap(err, nil)
	}
}

// renew makes all calls that begin from now on use new connections.
func (d *Database) renew() {
	d.pool.SetMaxIdleConns(0)
	d.pool.SetMaxIdleConns(maxConns)
}

// callFor is call for one tag. bun would leave a NUL out of a name, and mean another tag.
func (d *Database) callFor(ctx context.Context, tag string, f func(*opened) error) error {
	if err := idspace.CheckTag(tag); err != nil {
		return err
	}
	return d.call(ctx, tag, f)
}

// call calls f with the database, if that can be used, and explains what f returns. tag is empty if
// it is about all.
func (d *Database) call(ctx context.Context, tag string, f func(*opened) error) error {
	o := d.fit.Load()
	if o == nil {
		return fmt.Errorf("%w: the MySQL database has not been reached yet", allocator.ErrUnavailable)
	}
	if err := d.Err(); errors.Is(err, allocator.ErrRefused) {
		return err
	}
	if err := f(o); err != nil {
		return d.explain(ctx, tag, err)
	}
	d.found()
	return nil
}
