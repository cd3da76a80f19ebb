package schema

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"

	"github.com/leafbus/leafbus/allocator"
)

// table is a table that this package keeps, and the statement that creates it.
type table struct{ name, create string }

// tables are all that this package keeps. Each statement can be repeated and changes no existing
// table. So there is no order, no version and no lock to keep, and generators may start together.
func tables(alloc string) []table {
	return append([]table{{alloc, fmt.Sprintf(createAlloc, alloc)}}, beside...)
}

// createAlloc creates the table of the tags as Leaf has it, but for the collation: tags are case-sensitive.
const createAlloc = "CREATE TABLE IF NOT EXISTS `%s` (\n" +
	"  biz_tag varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,\n" +
	"  max_id bigint NOT NULL DEFAULT 1 COMMENT 'the next ID that nobody has reserved',\n" +
	"  step int NOT NULL COMMENT 'IDs that are reserved at a time',\n" +
	"  description varchar(256) CHARACTER SET utf8mb4 DEFAULT NULL,\n" +
	"  update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,\n" +
	"  PRIMARY KEY (biz_tag)\n" +
	") ENGINE=InnoDB"

// beside are the tables that stand beside that of the tags.
var beside = []table{
	{"leaf_mark", "CREATE TABLE IF NOT EXISTS leaf_mark (\n" +
		"  biz_tag varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,\n" +
		"  mark bigint NOT NULL COMMENT 'how far the name was in use',\n" +
		"  kind varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '' COMMENT 'of the tag: trend, " +
		"strict or opaque',\n" +
		"  update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,\n" +
		"  PRIMARY KEY (biz_tag)\n" +
		") ENGINE=InnoDB"},
	{"leaf_installation", "CREATE TABLE IF NOT EXISTS leaf_installation (\n" +
		"  one tinyint NOT NULL DEFAULT 1 COMMENT 'there is one row',\n" +
		"  id varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'of the installation',\n" +
		"  store varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'of the database',\n" +
		"  alloc varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT 'leaf_alloc' COMMENT 'the " +
		"table of the tags',\n" +
		"  created timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,\n" +
		"  PRIMARY KEY (one)\n" +
		") ENGINE=InnoDB"},
}

// SQL is the statements that create the tables, for an account that may create them. alloc is the table
// of the tags; empty: DefaultTable.
func SQL(alloc string) string {
	var b strings.Builder
	for _, t := range tables(cmp.Or(alloc, DefaultTable)) {
		b.WriteString(t.create + ";\n")
	}
	return b.String()
}

// Migrate does the work of [Database.Open], and returns the tables that it created. It
// refuses an account that lacks a right of administration, even if it can serve IDs.
func (d *Database) Migrate(ctx context.Context) (created []string, err error) {
	if created, err = d.migrate(ctx, false); err != nil {
		return created, err
	}
	if right := d.lacking(ctx); right != "" {
		return created, fmt.Errorf("%w: the account may not %s; it needs SELECT, INSERT, UPDATE and DELETE on %s, "+
			"leaf_mark and leaf_installation",
			allocator.ErrRefused, right, d.cfg.Table)
	}
	return created, nil
}

// errNoOwner: the database has no table leaf_installation.
var errNoOwner = errors.New("the database has no owner")

// examine returns the database that was found fit, now or before. One that must
// have an owner and has none stays as it is: the error is errNoOwner.
func (d *Database) examine(ctx context.Context, owned bool) (*opened, error) {
	if o := d.fit.Load(); o != nil {
		return o, nil
	}
	_, err := d.migrate(ctx, owned)
	return d.fit.Load(), err
}

func (d *Database) migrate(ctx context.Context, owned bool) (created []string, err error) {
	// First: bun asks for the version without a context.
	err = d.pool.PingContext(ctx)
	switch number(err) {
	case 1193, 1231, 1232:
		return nil, fmt.Errorf("%w: the server does not accept a parameter of the DSN: %w", allocator.ErrRefused, err)
	}
	if err != nil {
		return nil, d.explain(ctx, err)
	}
	o := &opened{db: bun.NewDB(d.pool, mysqldialect.New()).WithNamedArg("alloc", bun.Ident(d.cfg.Table))}
	names, err := d.missing(ctx, o.db)
	if err != nil {
		return nil, d.explain(ctx, err)
	}
	isOwned := !slices.Contains(names, "leaf_installation")
	if owned && !isOwned {
		return nil, errNoOwner
	}
	if isOwned {
		if err := d.checkName(ctx, o); err != nil {
			return nil, d.explain(ctx, err)
		}
	}
	if !slices.Contains(names, "leaf_mark") {
		if err := checkMarks(ctx, o.db); err != nil {
			return nil, d.explain(ctx, err)
		}
	}
	if slices.Contains(names, d.cfg.Table) {
		o.layout = layout{table: d.cfg.Table, description: "description"}
	} else { // before a table is created beside one that cannot be used
		if o.layout, err = inspect(ctx, o.db, d.cfg.Table); err != nil {
			return nil, d.explain(ctx, err)
		}
		if err := o.refuse(); err != nil {
			return nil, err
		}
	}
	if len(names) > 0 && d.cfg.Check {
		return nil, fmt.Errorf("%w: tables are missing in the database (%s); `leaf migrate` creates them",
			allocator.ErrRefused, strings.Join(names, ", "))
	}
	if err := d.create(ctx, o.db, names); err != nil {
		return nil, d.explain(ctx, err)
	}
	// This changes nothing, but needs the right to.
	if _, err := o.db.ExecContext(ctx, "UPDATE ?alloc SET max_id = max_id WHERE biz_tag IS NULL"); err != nil {
		return names, d.explain(ctx, fmt.Errorf("table %s cannot be written: %w", o.table, err))
	}
	d.checkFlush(ctx, o.db)
	d.fit.Store(o)
	d.found()
	return names, nil
}

// checkFlush warns of a server that can lose what it has confirmed. Where there is a binary log, a crash undoes what
// the log has not on disk.
func (d *Database) checkFlush(ctx context.Context, db bun.IDB) {
	for _, setting := range []struct{ name, ask string }{
		{"innodb_flush_log_at_trx_commit", "SELECT CONCAT(@@global.innodb_flush_log_at_trx_commit)"},
		{"sync_binlog", "SELECT IF(@@global.log_bin, CONCAT(@@global.sync_binlog), '1')"},
	} {
		var value string
		if err := db.NewRaw(setting.ask).Scan(ctx, &value); err == nil && value != "1" {
			d.cfg.Log.Warn("the MySQL server confirms writes before they are synced to disk: a crash of its machine can "+
				"set it back",
				setting.name, value, "fix", "set "+setting.name+" to 1")
		}
	}
}

// checkMarks refuses a table of marks that another version made.
func checkMarks(ctx context.Context, db bun.IDB) error {
	have, err := columns(ctx, db, "leaf_mark")
	for _, name := range []string{"biz_tag", "mark", "kind"} {
		if _, ok := have[name]; !ok && err == nil {
			err = fmt.Errorf("%w: the table leaf_mark is of another version, without the column %s: give another database, or "+
				"RENAME TABLE leaf_mark TO leaf_mark_before, run `leaf migrate`, and take over how far deleted tags were: "+
				"INSERT INTO leaf_mark (biz_tag, mark) SELECT biz_tag, GREATEST(floor, max_id) FROM leaf_mark_before",
				allocator.ErrRefused, name)
		}
	}
	return err
}

// checkName refuses another table than the installation uses: it would begin at 1.
func (d *Database) checkName(ctx context.Context, o *opened) error {
	have, err := o.owner(ctx)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case number(err) == errNoColumn:
		err = fmt.Errorf("%w: the table leaf_installation is of another version: give another database, or drop the "+
			"table and make it as `leaf migrate --print` has it: %w",
			allocator.ErrRefused, err)
	case err == nil && !d.same(have.Alloc, d.cfg.Table):
		err = fmt.Errorf("%w: installation %s keeps its tags in the table %s of this database, not in %s: give "+
			"--mysql-table %[3]s",
			allocator.ErrRefused, have.Installation, have.Alloc, d.cfg.Table)
	}
	return err
}

// missing returns the names of the missing tables. It refuses a database where the name of one differs only in
// letters' case: that is probably the table, and a second one would begin at 1.
func (d *Database) missing(ctx context.Context, db bun.IDB) (names []string, err error) {
	var existing []string
	err = db.NewRaw(`SELECT table_name AS name FROM information_schema.tables WHERE table_schema = DATABASE()
		AND (LOWER(table_name) LIKE 'leaf\_%' OR LOWER(table_name) LIKE '%leaf\_alloc' OR LOWER(table_name) = LOWER(?))`,
		d.cfg.Table).Scan(ctx, &existing)
	if err != nil {
		return nil, err
	}
	var caseless bool
	if err := db.NewRaw("SELECT @@lower_case_table_names > 0").Scan(ctx, &caseless); err != nil {
		return nil, err
	}
	d.caseless.Store(caseless)
	for _, t := range tables(d.cfg.Table) {
		i := slices.IndexFunc(existing, func(name string) bool { return strings.EqualFold(name, t.name) })
		switch {
		case slices.ContainsFunc(existing, func(name string) bool { return d.same(name, t.name) }):
		case i < 0:
			names = append(names, t.name)
		case t.name == d.cfg.Table:
			return nil, fmt.Errorf("%w: the database has no table %s but a table %s: if the tags are there, give "+
				"--mysql-table %[3]s, else rename it",
				allocator.ErrRefused, t.name, existing[i])
		default:
			return nil, fmt.Errorf("%w: the database has no table %[2]s but a table %[3]s: RENAME TABLE %[3]s TO %[2]s",
				allocator.ErrRefused, t.name, existing[i])
		}
	}
	if !d.named {
		d.warnSimilar(existing)
	}
	return names, nil
}

// same reports whether two names are those of one table.
func (d *Database) same(a, b string) bool {
	return a == b || d.caseless.Load() && strings.EqualFold(a, b)
}

// warnSimilar warns once of tables that may have the tags: Leaf can be configured to use another name.
func (d *Database) warnSimilar(existing []string) {
	d.similar.Do(func() {
		for _, name := range existing {
			if !d.same(name, d.cfg.Table) && strings.HasSuffix(strings.ToLower(name), DefaultTable) {
				d.cfg.Log.Warn("the tags are in the table "+d.cfg.Table+", and the database has a table "+name+", too",
					"fix", "if the tags are there, give --mysql-table "+name+"; else --mysql-table "+d.cfg.Table+" ends this warning")
			}
		}
	})
}

// create creates the tables with these names.
func (d *Database) create(ctx context.Context, db bun.IDB, names []string) error {
	for _, t := range tables(d.cfg.Table) {
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
func (d *Database) lacking(ctx context.Context) string {
	for _, need := range []struct{ right, statement string }{
		{"INSERT on ?alloc", "INSERT INTO ?alloc (biz_tag, max_id, step) SELECT biz_tag, max_id, step FROM ?alloc " +
			"WHERE biz_tag IS NULL"},
		{"DELETE on ?alloc", "DELETE FROM ?alloc WHERE biz_tag IS NULL"},
		{"INSERT on leaf_mark", "INSERT INTO leaf_mark (biz_tag, mark) SELECT biz_tag, mark FROM leaf_mark WHERE " +
			"biz_tag IS NULL"},
		{"UPDATE on leaf_mark", "UPDATE leaf_mark SET mark = mark WHERE biz_tag IS NULL"},
		{"INSERT on leaf_installation", "INSERT INTO leaf_installation (id, store) SELECT id, store FROM " +
			"leaf_installation WHERE id IS NULL"},
	} {
		if _, err := d.fit.Load().db.ExecContext(ctx, need.statement); number(err) == errDenied {
			return strings.ReplaceAll(need.right, "?alloc", d.cfg.Table)
		}
	}
	return ""
}
