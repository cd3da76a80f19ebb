package schema

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"

	"github.com/leafbus/leafbus/allocator"
)

// tables are all that this package keeps, by their names. Each statement can be
// repeated and changes no existing table. So there is no order, no version and no
// lock to keep, and generators may start together.
var tables = []struct{ name, create string }{
	// As Leaf has it, but for the collation: tags are case-sensitive.
	{"leaf_alloc", "CREATE TABLE IF NOT EXISTS leaf_alloc (\n" +
		"  biz_tag varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,\n" +
		"  max_id bigint NOT NULL DEFAULT 1 COMMENT 'the next ID that nobody has reserved',\n" +
		"  step int NOT NULL COMMENT 'IDs that are reserved at a time',\n" +
		"  description varchar(256) CHARACTER SET utf8mb4 DEFAULT NULL,\n" +
		"  update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,\n" +
		"  PRIMARY KEY (biz_tag)\n" +
		") ENGINE=InnoDB"},
	{"leaf_mark", "CREATE TABLE IF NOT EXISTS leaf_mark (\n" +
		"  biz_tag varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,\n" +
		"  floor bigint NOT NULL DEFAULT 0 COMMENT 'where an operator last moved max_id to',\n" +
		"  max_id bigint NOT NULL DEFAULT 0 COMMENT 'how far a deleted tag was',\n" +
		"  update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,\n" +
		"  PRIMARY KEY (biz_tag)\n" +
		") ENGINE=InnoDB"},
	{"leaf_installation", "CREATE TABLE IF NOT EXISTS leaf_installation (\n" +
		"  one tinyint NOT NULL DEFAULT 1 COMMENT 'there is one row',\n" +
		"  id varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'of the installation',\n" +
		"  store varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'of the database',\n" +
		"  created timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,\n" +
		"  PRIMARY KEY (one)\n" +
		") ENGINE=InnoDB"},
}

// SQL is the statements that create the tables, for an account that may create them.
func SQL() string {
	var b strings.Builder
	for _, t := range tables {
		b.WriteString(t.create + ";\n")
	}
	return b.String()
}

// Migrate does the work of [Store.Open], and returns the tables that it created. It
// refuses an account that lacks a right of administration, even if it can serve IDs.
func (s *Store) Migrate(ctx context.Context) (created []string, err error) {
	if created, err = s.migrate(ctx, false); err != nil {
		return created, err
	}
	if right := lacking(ctx, s.fit.Load().db); right != "" {
		return created, fmt.Errorf("%w: the account may not %s; it needs SELECT, INSERT, UPDATE and DELETE on leaf_alloc, leaf_mark and leaf_installation",
			allocator.ErrRefused, right)
	}
	return created, nil
}

// errNoOwner: the database has no table leaf_installation.
var errNoOwner = errors.New("the database has no owner")

// examine returns the database that was found fit, now or before. One that must
// have an owner and has none stays as it is: the error is errNoOwner.
func (s *Store) examine(ctx context.Context, owned bool) (*opened, error) {
	if o := s.fit.Load(); o != nil {
		return o, nil
	}
	_, err := s.migrate(ctx, owned)
	return s.fit.Load(), err
}

func (s *Store) migrate(ctx context.Context, owned bool) (created []string, err error) {
	// First: bun asks for the version without a context.
	err = s.pool.PingContext(ctx)
	switch number(err) {
	case errVariable, errVariableType, errVariableText:
		return nil, fmt.Errorf("%w: the server does not accept a parameter of the DSN: %w", allocator.ErrRefused, err)
	}
	if err != nil {
		return nil, s.lost(ctx, err)
	}
	o := &opened{db: bun.NewDB(s.pool, mysqldialect.New())}
	names, err := missing(ctx, o.db)
	if err != nil {
		return nil, s.lost(ctx, err)
	}
	if owned && slices.Contains(names, "leaf_installation") {
		return nil, errNoOwner
	}
	look := func() error {
		if o.layout, err = inspect(ctx, o.db); err != nil {
			return s.lost(ctx, err)
		}
		return o.refuse()
	}
	isNew := slices.Contains(names, "leaf_alloc")
	if !isNew { // before a table is created beside one that cannot be used
		if err := look(); err != nil {
			return nil, err
		}
	}
	if len(names) > 0 && s.cfg.Check {
		return nil, fmt.Errorf("%w: tables are missing in the database (%s); `leaf migrate` creates them", allocator.ErrRefused, strings.Join(names, ", "))
	}
	if err := create(ctx, o.db, names); err != nil {
		return nil, s.lost(ctx, err)
	}
	if isNew {
		if err := look(); err != nil {
			return names, err
		}
	}
	// This changes nothing, but needs the right to.
	if _, err := o.db.ExecContext(ctx, "UPDATE leaf_alloc SET max_id = max_id WHERE biz_tag IS NULL"); err != nil {
		return names, s.lost(ctx, fmt.Errorf("leaf_alloc cannot be written: %w", err))
	}
	s.checkFlush(ctx, o.db)
	s.fit.Store(o)
	s.found()
	return names, nil
}

// checkFlush warns of a server that can lose what it has confirmed. Where there is a binary log, a crash undoes what
// the log has not on disk.
func (s *Store) checkFlush(ctx context.Context, db bun.IDB) {
	for _, setting := range []struct{ name, ask string }{
		{"innodb_flush_log_at_trx_commit", "SELECT CONCAT(@@global.innodb_flush_log_at_trx_commit)"},
		{"sync_binlog", "SELECT IF(@@global.log_bin, CONCAT(@@global.sync_binlog), '1')"},
	} {
		var value string
		if err := db.NewRaw(setting.ask).Scan(ctx, &value); err == nil && value != "1" {
			s.cfg.Log.Warn("the MySQL server confirms writes before they are synced to disk: a crash of its machine can set it back",
				setting.name, value, "fix", "set "+setting.name+" to 1")
		}
	}
}

// missing returns the names of the missing tables.
func missing(ctx context.Context, db bun.IDB) (names []string, err error) {
	var existing []string
	err = db.NewRaw(`SELECT table_name AS name FROM information_schema.tables
		WHERE table_schema = DATABASE() AND table_name LIKE 'leaf\_%'`).Scan(ctx, &existing)
	for _, t := range tables {
		if !slices.Contains(existing, t.name) {
			names = append(names, t.name)
		}
	}
	return names, err
}

// create creates the tables with these names.
func create(ctx context.Context, db bun.IDB, names []string) error {
	for _, t := range tables {
		if !slices.Contains(names, t.name) {
			continue
		}
		if _, err := db.ExecContext(ctx, t.create); err != nil {
			return fmt.Errorf("creating table %s: %w", t.name, err)
		}
	}
	return nil
}

// lacking names a right that the account needs and lacks; empty: none. It changes no row.
func lacking(ctx context.Context, db bun.IDB) string {
	for _, need := range []struct{ right, statement string }{
		{"INSERT on leaf_alloc", "INSERT INTO leaf_alloc (biz_tag, max_id, step) SELECT biz_tag, max_id, step FROM leaf_alloc WHERE biz_tag IS NULL"},
		{"DELETE on leaf_alloc", "DELETE FROM leaf_alloc WHERE biz_tag IS NULL"},
		{"INSERT on leaf_mark", "INSERT INTO leaf_mark (biz_tag) SELECT biz_tag FROM leaf_mark WHERE biz_tag IS NULL"},
		{"UPDATE on leaf_mark", "UPDATE leaf_mark SET floor = floor WHERE biz_tag IS NULL"},
		{"INSERT on leaf_installation", "INSERT INTO leaf_installation (id, store) SELECT id, store FROM leaf_installation WHERE id IS NULL"},
	} {
		if _, err := db.ExecContext(ctx, need.statement); number(err) == errDenied {
			return need.right
		}
	}
	return ""
}
