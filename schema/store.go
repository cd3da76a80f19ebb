package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"

	"github.com/leafbus/leafbus/allocator"
)

// DefaultRefresh is how often the table is read for tags that appeared,
// changed or vanished.
const DefaultRefresh = time.Minute

// Config says which database a [Store] uses, and how.
type Config struct {
	// DSN is that of github.com/go-sql-driver/mysql,
	// user:password@tcp(host:3306)/database. What safety needs is forced over it.
	DSN string
	// Check makes Open create nothing: it refuses where a table is missing.
	Check bool
	// Refresh is how often the table is read. Default: DefaultRefresh.
	Refresh time.Duration
	Log     *slog.Logger // default: slog.Default
}

// Store keeps the tags in the table leaf_alloc. It implements
// [allocator.Store]; until [Store.Open] has returned without an error, its
// methods return [allocator.ErrUnavailable]. One Watch at a time is told all
// changes.
type Store struct {
	cfg  Config
	name string
	pool *sql.DB
	fit  atomic.Pointer[opened] // once it was examined
	open atomic.Pointer[opened] // the same, once it may be used

	mu    sync.Mutex
	known map[string]sight // the tags that were seen in the table
	polls uint32           // how often it was read whole
	named bool             // the rows that are not served were told

	away  atomic.Pointer[error] // why the last call failed; nil: it did not
	unfit atomic.Pointer[error] // why leaf_alloc is not to be used since it was altered; nil: it is
	owner atomic.Pointer[claimed]
	place atomic.Pointer[string] // the ID of the database; nil: not known yet
}

// opened is what is known of a database that was found fit.
type opened struct {
	db *bun.DB
	layout
}

// sight is what was last seen of a tag. A step that is no longer true is
// found out when it is used.
type sight struct {
	step, floor int64
	poll        uint32 // the reading of the table in which, or after which, it was seen
}

var _ allocator.Store = (*Store)(nil)

// New returns a store that is not open. An error says that the DSN cannot be
// used; it does not quote it.
func New(cfg Config) (*Store, error) {
	if cfg.Refresh == 0 {
		cfg.Refresh = DefaultRefresh
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	driver, err := parse(cfg.DSN, cfg.Log)
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, name: driver.Addr + "/" + driver.DBName, known: make(map[string]sight)}
	if s.pool, err = connect(driver, &s.place); err != nil {
		return nil, err
	}
	return s, nil
}

// Name is the address and the name of the database.
func (s *Store) Name() string { return s.name }

// Close closes the connections.
func (s *Store) Close() error { return s.pool.Close() }

// Open makes sure that the database is there and its tables are fit; it creates
// those that are missing, and changes none that is there. It may be called until it succeeds, and
// after; an error that matches [allocator.ErrRefused] will stay.
func (s *Store) Open(ctx context.Context) error {
	o, err := s.examine(ctx, false)
	if err == nil {
		s.open.Store(o)
	}
	return err
}

// examine returns the database that was found fit, now or before. One that must
// have an owner and has none is left as it is: the error is errNoOwner.
func (s *Store) examine(ctx context.Context, owned bool) (*opened, error) {
	if o := s.fit.Load(); o != nil {
		return o, nil
	}
	_, err := s.migrate(ctx, owned)
	return s.fit.Load(), err
}

// errNoOwner: the database has no table leaf_installation.
var errNoOwner = errors.New("the database is nobody's")

// Migrate does the work of [Store.Open], and returns the tables that it created.
// An account that may not do what administration needs is refused, though it may do for IDs.
func (s *Store) Migrate(ctx context.Context) (created []string, err error) {
	if created, err = s.migrate(ctx, false); err != nil {
		return created, err
	}
	if right := lacking(ctx, s.fit.Load().db); right != "" {
		return created, fmt.Errorf("%w: the account may not %s; it needs SELECT, INSERT, UPDATE and DELETE on leaf_alloc, leaf_mark and leaf_installation", allocator.ErrRefused, right)
	}
	return created, nil
}

func (s *Store) migrate(ctx context.Context, owned bool) (created []string, err error) {
	// First: bun asks for the version without a context.
	err = s.pool.PingContext(ctx)
	switch number(err) {
	case errVariable, errVariableType, errVariableText:
		return nil, fmt.Errorf("%w: the server does not take a parameter of the DSN: %w", allocator.ErrRefused, err)
	}
	if err != nil {
		return nil, s.lost(ctx, err)
	}
	db := bun.NewDB(s.pool, mysqldialect.New())
	names, err := missing(ctx, db)
	if err != nil {
		return nil, s.lost(ctx, err)
	}
	if owned && slices.Contains(names, "leaf_installation") {
		return nil, errNoOwner
	}
	var l layout
	look := func() error {
		if l, err = inspect(ctx, db); err != nil {
			return s.lost(ctx, err)
		}
		return l.refuse()
	}
	isNew := slices.Contains(names, "leaf_alloc")
	if !isNew { // before anything is put beside a table that cannot be used
		if err := look(); err != nil {
			return nil, err
		}
	}
	if len(names) > 0 && s.cfg.Check {
		return nil, fmt.Errorf("%w: tables are missing in the database (%s); `leaf migrate` creates them", allocator.ErrRefused, strings.Join(names, ", "))
	}
	if err := create(ctx, db, names); err != nil {
		return nil, s.lost(ctx, err)
	}
	if isNew {
		if err := look(); err != nil {
			return names, err
		}
	}
	// Nothing is changed, but the right to is asked for.
	if _, err := db.ExecContext(ctx, "UPDATE leaf_alloc SET max_id = max_id WHERE biz_tag IS NULL"); err != nil {
		return names, s.lost(ctx, fmt.Errorf("leaf_alloc cannot be written: %w", err))
	}
	var flush string
	if err := db.NewRaw("SELECT CONCAT(@@global.innodb_flush_log_at_trx_commit)").Scan(ctx, &flush); err == nil && flush != "1" {
		s.cfg.Log.Warn("the MySQL server confirms what it has not synced to disk: when its machine crashes it may forget ranges that were handed out "+
			"(that is noticed, and refused); set it to 1", "innodb_flush_log_at_trx_commit", flush)
	}
	s.fit.Store(&opened{db: db, layout: l})
	s.found()
	return names, nil
}

// Err says why the database is away, as far as the last call has noticed. An
// error that matches [allocator.ErrRefused] stays: the database is another's.
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
	o := s.open.Load()
	if o == nil {
		return nil, fmt.Errorf("%w: the MySQL database has not been reached yet", allocator.ErrUnavailable)
	}
	if err := s.Err(); errors.Is(err, allocator.ErrRefused) {
		return nil, err
	}
	return o, nil
}

// Reserve implements [allocator.Store] with one statement.
func (s *Store) Reserve(ctx context.Context, tag string, n int64) (allocator.Grant, error) {
	o, err := s.database()
	if err != nil {
		return allocator.Grant{}, err
	}
	if err := allocator.CheckTag(tag); err != nil {
		return allocator.Grant{}, err
	}
	if err := s.unfit.Load(); err != nil {
		return allocator.Grant{}, *err
	}
	g, err := s.reserve(ctx, o, tag, n)
	switch {
	case number(err) == errLockWait:
		return g, fmt.Errorf("%w: in MySQL a transaction holds the row of %s in leaf_alloc, or the table (SHOW ENGINE INNODB STATUS names it): %w", allocator.ErrLocked, tag, err)
	case undone(err):
		return g, fmt.Errorf("%w: %w", allocator.ErrConflict, err)
	}
	if err != nil {
		return allocator.Grant{}, s.lost(ctx, err)
	}
	s.found()
	return g, nil
}

func (s *Store) reserve(ctx context.Context, o *opened, tag string, n int64) (allocator.Grant, error) {
	step := s.sight(tag).step
	if step < 1 { // not known
		row, err := s.find(ctx, o, tag)
		if err != nil {
			return allocator.Grant{}, err
		}
		step = row.Step
	}
	amount := max(n, step)
	for range 2 {
		first, err := o.advance(ctx, tag, amount, step)
		if first > 0 || err != nil {
			return allocator.Grant{Range: allocator.Range{First: first, Last: first + amount - 1}, Step: step}, err
		}
		row, err := s.find(ctx, o, tag)
		if err != nil {
			return allocator.Grant{}, err
		}
		left := math.MaxInt64 - max(row.MaxID, 1)
		switch {
		case row.Step != step:
			return allocator.Grant{}, fmt.Errorf("%w: the step of %s was changed", allocator.ErrConflict, tag)
		case left < n:
			return allocator.Grant{}, fmt.Errorf("%w: the database has %d IDs of %s left", allocator.ErrExhausted, left, tag)
		}
		amount = min(amount, left)
	}
	return allocator.Grant{}, fmt.Errorf("%w: the row of %s was changed", allocator.ErrConflict, tag)
}

// advance moves max_id by amount and returns where it was; 0: no row matched.
func (o *opened) advance(ctx context.Context, tag string, amount, step int64) (first int64, err error) {
	// As plain text: building it would take a tenth of the time of the whole.
	result, err := o.db.ExecContext(ctx, "UPDATE leaf_alloc SET max_id = LAST_INSERT_ID(GREATEST(max_id, 1) + ?) WHERE "+named+
		" AND step = ? AND GREATEST(max_id, 1) <= ?", amount, tag, tag, step, math.MaxInt64-amount)
	if err != nil {
		return 0, err
	}
	affected, err := result.RowsAffected()
	if err != nil || affected == 0 {
		return 0, err
	}
	end, err := result.LastInsertId()
	if err != nil {
		return 0, err
	}
	if affected != 1 || end-amount < 1 {
		return 0, fmt.Errorf("the database changed %d rows of %s and answers that max_id is %d, after it was moved by %d: the range is given up; "+
			"does leaf_alloc have a trigger by now?", affected, tag, end, amount)
	}
	return end - amount, nil
}

// find reads the row of a tag that can be served, and remembers it. One that
// is below what is noted of the tag went backwards.
func (s *Store) find(ctx context.Context, o *opened, tag string) (alloc, error) {
	var row alloc
	err := o.db.NewSelect().Model(&row).Column("biz_tag", "max_id", "step").
		ColumnExpr("(SELECT GREATEST(m.floor, m.max_id) FROM leaf_mark AS m WHERE m.biz_tag = ?) AS noted", tag).
		Where(named, tag, tag).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		err = allocator.ErrUnknownTag
	}
	if err == nil {
		err = row.check()
	}
	if at := max(row.MaxID, 1); err == nil && at < row.Noted.Int64 {
		err = &allocator.RegressedError{Tag: tag, Got: at, Seen: row.Noted.Int64}
	}
	if err != nil {
		s.forget(tag)
		return row, err
	}
	s.see(tag, row.Step)
	return row, nil
}

// sight is what is known of a tag; zero: nothing.
func (s *Store) sight(tag string) sight {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[tag]
}

// see remembers a tag.
func (s *Store) see(tag string, step int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if step > allocator.LimitStep { // not to be used
		step = 0
	}
	k := s.known[tag]
	k.step, k.poll = step, s.polls
	s.known[tag] = k
}

// forget notes that a tag's step is not known any more. That it vanished is
// for the next reading of the table to tell.
func (s *Store) forget(tag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, ok := s.known[tag]; ok {
		k.step = 0
		s.known[tag] = k
	}
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

// load reads a tag's row and what is noted of it; lock may be UPDATE. The
// error is ErrUnknownTag or ErrDeleted where there is no row; the note is
// returned also then.
func (o *opened) load(ctx context.Context, db bun.IDB, tag, lock string) (row alloc, m mark, err error) {
	q := o.rows(db, &row).Where(named, tag, tag)
	if lock != "" {
		q = q.For(lock)
	}
	err = q.Scan(ctx)
	gone := errors.Is(err, sql.ErrNoRows)
	if err != nil && !gone {
		return row, m, err
	}
	q = db.NewSelect().Model(&m).Where("?TableAlias.biz_tag = ?", tag)
	if lock != "" {
		q = q.For(lock)
	}
	if err = q.Scan(ctx); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return row, m, err
	}
	switch {
	case !gone:
		return row, m, nil
	case m.MaxID > 0:
		return row, m, allocator.ErrDeleted
	}
	return row, m, allocator.ErrUnknownTag
}

// rows selects rows of leaf_alloc, with their descriptions if it has them.
func (o *opened) rows(db bun.IDB, to any) *bun.SelectQuery {
	q := db.NewSelect().Model(to).Column("biz_tag", "max_id", "step", "update_time")
	if o.description != "" {
		q = q.ColumnExpr("?TableAlias.? AS description", bun.Ident(o.description))
	}
	return q
}

// List implements [allocator.Store]. Rows that cannot be served are in it too:
// those with other names, and those with a step below 1.
func (s *Store) List(ctx context.Context, q allocator.Query) ([]allocator.Tag, error) {
	o, err := s.database()
	if err != nil {
		return nil, err
	}
	if strings.ContainsRune(q.Prefix+q.Contains+q.After, 0) {
		return nil, nil // no row is called so, and bun would leave the NUL out
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

// marks returns the notes of these tags by name; nil: of all.
func marks(ctx context.Context, db bun.IDB, names []string) (map[string]mark, error) {
	var list []mark
	q := db.NewSelect().Model(&list)
	if names != nil {
		if len(names) == 0 {
			return nil, nil
		}
		q = q.Where("?TableAlias.biz_tag IN (?)", bun.List(names))
	}
	if err := q.Scan(ctx); err != nil {
		return nil, err
	}
	byName := make(map[string]mark, len(list))
	for _, m := range list {
		byName[m.BizTag] = m
	}
	return byName, nil
}
