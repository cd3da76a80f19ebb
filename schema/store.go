package schema

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/uptrace/bun"

	"github.com/leafbus/leafbus/allocator"
)

// DefaultRefresh is how often the table is read for tags that appeared,
// changed or vanished.
const DefaultRefresh = time.Minute

// DefaultTable is the name that Leaf gives the table of the tags.
const DefaultTable = "leaf_alloc"

// tableName is what a table may be called without quotes, in any database.
var tableName = regexp.MustCompile(`^[0-9A-Za-z_$]{1,64}$`)

// Config says which database a [Store] uses, and how.
type Config struct {
	// DSN is that of github.com/go-sql-driver/mysql,
	// user:password@tcp(host:3306)/database. What safety needs is forced over it.
	DSN string
	// Reread returns the DSN again for each new connection; nil: it does not change.
	Reread func() (string, error)
	TLS    TLS
	// Table is the table of the tags. Default: DefaultTable; then the log warns of other tables that may be meant.
	Table string
	// Check makes Open create nothing: it refuses where a table is missing.
	Check bool
	// Shared says that other programs reserve in the table too, as Java Leaf does. Then Reserve does not
	// move max_id up after the database went backwards: nobody knows how far the other programs were.
	Shared bool
	// Refresh is how often the table is read. Default: DefaultRefresh.
	Refresh time.Duration
	Log     *slog.Logger // default: slog.Default
}

// Store keeps the tags in a table as Leaf has it. It implements
// [allocator.Store]; until [Store.Open] has returned without an error, its
// methods return [allocator.ErrUnavailable]. Run one Watch at a time: each change
// is reported once.
type Store struct {
	cfg    Config
	named  bool // the table was chosen by its name
	access *access
	pool   *sql.DB
	fit    atomic.Pointer[opened] // once it was examined
	open   atomic.Bool            // Open has succeeded

	steps steps
	mu    sync.Mutex
	known map[string]knownTag
	polls uint32 // how often the table was read whole

	restoring time.Duration // as the constant has it, but for tests

	warnUnfit  sync.Once              // at the first reading of the table
	warned     sync.Once              // of tables that may be meant
	away       atomic.Pointer[error]  // why the last call failed; nil: it did not
	caseless   atomic.Bool            // the names of tables ignore letters' case
	unfit      atomic.Pointer[error]  // why the table cannot be used since it was altered; nil: it can
	owner      atomic.Pointer[owner]  // nil: it is not known to be this installation's
	databaseID atomic.Pointer[string] // nil: not known yet
}

// opened is what is known of a database that was found fit.
type opened struct {
	db *bun.DB
	layout
}

var _ allocator.Store = (*Store)(nil)

// New returns a store that is not open. An error says that the DSN cannot be
// used; it does not quote it.
func New(cfg Config) (*Store, error) {
	cfg.Refresh = cmp.Or(cfg.Refresh, DefaultRefresh)
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	named := cfg.Table != ""
	cfg.Table = cmp.Or(cfg.Table, DefaultTable)
	if !tableName.MatchString(cfg.Table) {
		return nil, fmt.Errorf("%q cannot be the name of a table: want up to 64 of [A-Za-z0-9_$], without the database, which the DSN names", cfg.Table)
	}
	way, err := newAccess(cfg)
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, named: named, access: way, known: make(map[string]knownTag), restoring: restoring}
	s.pool = connect(way, &s.databaseID)
	return s, nil
}

// Close closes the connections.
func (s *Store) Close() error { return s.pool.Close() }

// Open makes sure that the database can be reached and its tables are fit. It creates
// missing tables, and changes no existing one. It may be called until it succeeds, and
// after; an error that matches [allocator.ErrRefused] will stay.
func (s *Store) Open(ctx context.Context) error {
	_, err := s.examine(ctx, false)
	if err == nil {
		s.open.Store(true)
	}
	return err
}

// Err says why the database is unavailable, as far as the last call has noticed. An
// error that matches [allocator.ErrRefused] stays: the database has another owner.
func (s *Store) Err() error {
	if err := s.away.Load(); err != nil {
		return *err
	}
	return nil
}

// found notes that the database answers, unless it was refused.
func (s *Store) found() {
	if err := s.away.Load(); err != nil && !errors.Is(*err, allocator.ErrRefused) {
		s.away.CompareAndSwap(err, nil)
	}
}

// renew makes all calls that begin from now on use new connections.
func (s *Store) renew() {
	s.pool.SetMaxIdleConns(0)
	s.pool.SetMaxIdleConns(maxConns)
}

func (s *Store) database() (*opened, error) {
	if !s.open.Load() {
		return nil, fmt.Errorf("%w: the MySQL database has not been reached yet", allocator.ErrUnavailable)
	}
	if err := s.Err(); errors.Is(err, allocator.ErrRefused) {
		return nil, err
	}
	return s.fit.Load(), nil
}

// of is database for a call about one tag. bun would leave a NUL out of a name, and mean another tag.
func (s *Store) of(tag string) (*opened, error) {
	if err := allocator.CheckTag(tag); err != nil {
		return nil, err
	}
	return s.database()
}

// Get implements [allocator.Store].
func (s *Store) Get(ctx context.Context, tag string) (allocator.Tag, error) {
	o, err := s.database()
	if err != nil {
		return allocator.Tag{}, err
	}
	if err := allocator.CheckTag(tag); err != nil {
		return allocator.Tag{}, err
	}
	row, m, err := o.load(ctx, o.db, tag, "")
	if err != nil {
		return allocator.Tag{}, s.explain(ctx, err)
	}
	return row.tag(m), nil
}

// Stored is Get for audits, which know that all IDs below end are claimed. If max_id is below end, a replica that lags may
// have answered: Stored reads again with a lock, so that the primary answers.
func (s *Store) Stored(ctx context.Context, tag string, end int64) (allocator.Tag, error) {
	t, err := s.Get(ctx, tag)
	if err != nil || t.MaxID >= end {
		return t, err
	}
	o, err := s.database()
	if err != nil {
		return t, err
	}
	row, m, err := o.load(ctx, o.db, tag, "UPDATE")
	if err != nil {
		return t, s.explain(ctx, err)
	}
	return row.tag(m), nil
}

// List implements [allocator.Store]. It includes rows that cannot be served:
// those with an illegal name, and those with a step below 1.
func (s *Store) List(ctx context.Context, q allocator.Query) ([]allocator.Tag, error) {
	o, err := s.database()
	if err != nil {
		return nil, err
	}
	if strings.ContainsRune(q.Prefix+q.Contains+q.After, 0) {
		return nil, nil // no row has such a name, and bun would leave the NUL out
	}
	// In the order of bytes, by the index if it is one of bytes and its
	// character set has what is looked for.
	const binary = "CAST(CONVERT(?TableAlias.biz_tag USING utf8mb4) AS BINARY)"
	name := binary
	if o.binary && !strings.ContainsFunc(q.Prefix+q.After, func(r rune) bool { return r > unicode.MaxASCII }) {
		name = "?TableAlias.biz_tag"
	}
	var rows []alloc
	sel := o.rows(o.db, &rows).Where(name+" >= ?", max(q.Prefix, q.After)).OrderExpr(name).Limit(int64(q.Limit))
	if q.After != "" { // a row without a name is not served, but listed
		sel = sel.Where(name+" <> ?", q.After)
	}
	if q.Prefix != "" {
		sel = sel.Where("LEFT("+binary+", ?) = CAST(? AS BINARY)", len(q.Prefix), q.Prefix)
	}
	if q.Contains != "" {
		sel = sel.Where("LOCATE(?, "+binary+") > 0", []byte(q.Contains)) // in hex, so that it is bytes
	}
	if err := sel.Scan(ctx); err != nil {
		return nil, s.explain(ctx, err)
	}
	names := make([]string, len(rows))
	for i, row := range rows {
		names[i] = row.BizTag
	}
	marks, err := marks(ctx, o.db, names)
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	tags := make([]allocator.Tag, len(rows))
	for i, row := range rows {
		tags[i] = row.tag(marks[row.BizTag])
	}
	return tags, nil
}
