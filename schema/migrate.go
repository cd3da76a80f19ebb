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

// createAlloc creates the table of the tags as Leaf has it, but for the collation: tags are
// case-sensitive.
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

// SQL is the statements that create the tables, for an account that may create them. alloc is the
// table of the tags; empty: DefaultTable.
func SQL(alloc string) (string, error) {
	alloc = cmp.Or(alloc, DefaultTable)
	var b strings.Builder
	for _, t := range tables(alloc) {
		b.WriteString(t.create + ";\n")
	}
	return b.String(), checkTable(alloc)
}

// Migrate does the work of [Database.Open], and returns the tables that it created.
func (d *Database) Migrate(ctx context.Context) (created []string, err error) {
	o, created, err := d.migrate(ctx, false)
	if err == nil {
		d.warnUnsynced(ctx, o.db)
		d.fit.Store(o)
		d.found()
	}
	return created, err
}

// warnUnsynced warns of a server that can lose what it has confirmed. Where there is a binary log,
// a crash undoes what the log has not on disk.
func (d *Database) warnUnsynced(ctx context.Context, db bun.IDB) {
	for name, ask := range map[string]string{
		"innodb_flush_log_at_trx_commit": "SELECT CONCAT(@@global.innodb_flush_log_at_trx_commit)",
		"sync_binlog":                    "SELECT IF(@@global.log_bin, CONCAT(@@global.sync_binlog), '1')",
	} {
		var value string
		if err := db.NewRaw(ask).Scan(ctx, &value); err == nil && value != "1" {
			d.cfg.Log.Warn("the MySQL server confirms writes before they are on disk: a crash of its machine can set it back",
				name, value, "fix", "set "+name+" to 1")
		}
	}
}

// errNoOwner: the database has no table leaf_installation.
var errNoOwner = errors.New("the database has no owner")

// migrate examines the database, and creates the tables that are missing. One that
// must have an owner and has none stays as it is: the error is errNoOwner.
func (d *Database) migrate(ctx context.Context, owned bool) (o *opened, created []string, err error) {
	// First: bun asks for the version without a context.
	err = d.pool.PingContext(ctx)
	switch number(err) {
	case 1193, 1231, 1232:
		return nil, nil, fmt.Errorf("%w: the server does not accept a parameter of the DSN: %w", allocator.ErrRefused, err)
	}
	if err != nil {
		return nil, nil, d.explain(ctx, "", err)
	}
	o = &opened{
		db:     bun.NewDB(d.pool, mysqldialect.New()).WithNamedArg("alloc", bun.Ident(d.cfg.Table)),
		layout: layout{table: d.cfg.Table, description: "description"}, // of one that is created
	}
	missing, err := d.missing(ctx, o)
	switch {
	case err == nil && owned && slices.Contains(missing, "leaf_installation"):
		return nil, nil, errNoOwner
	case err == nil && len(missing) > 0 && d.cfg.Check:
		err = fmt.Errorf("%w: tables are missing in the database (%s); `leaf migrate` creates them",
			allocator.ErrRefused, strings.Join(missing, ", "))
	case err == nil:
		err = d.create(ctx, o.db, missing)
	}
	if err == nil {
		err = d.mayChange(ctx, o.db)
	}
	if err != nil {
		return nil, nil, d.explain(ctx, "", err)
	}
	return o, missing, nil
}

// mayChange finds rights that the account lacks, and tables of another version. It changes no row.
func (d *Database) mayChange(ctx context.Context, db bun.IDB) error {
	for _, statement := range []string{
		"UPDATE ?alloc SET max_id = max_id WHERE biz_tag IS NULL",
		"INSERT INTO ?alloc (biz_tag, max_id, step) SELECT biz_tag, max_id, step FROM ?alloc WHERE biz_tag IS NULL",
		"DELETE FROM ?alloc WHERE biz_tag IS NULL",
		"INSERT INTO leaf_mark (biz_tag, mark, kind) SELECT biz_tag, mark, kind FROM leaf_mark WHERE biz_tag IS NULL",
		"UPDATE leaf_mark SET mark = mark WHERE biz_tag IS NULL",
		"INSERT INTO leaf_installation (id, store, alloc) SELECT id, store, alloc FROM leaf_installation WHERE id IS NULL",
	} {
		_, err := db.ExecContext(ctx, statement)
		if n := number(err); err != nil && n != errNoDefault { // which the description may lack; Add gives it a value
			return fmt.Errorf("table %s, leaf_mark or leaf_installation cannot be written: %w", d.cfg.Table, err)
		}
	}
	return nil
}

// missing returns the names of the missing tables. It refuses those that cannot be used, before a
// table is created beside them, and a database where the name of one differs only in letters' case:
// that is probably the table, and a second one would begin at 1.
func (d *Database) missing(ctx context.Context, o *opened) (names []string, err error) {
	var existing []string
	var caseless bool
	err = o.db.NewRaw(`SELECT table_name AS name FROM information_schema.tables WHERE table_schema = DATABASE()
		AND LOWER(table_name) IN ('leaf_mark', 'leaf_installation', LOWER(?))`, d.cfg.Table).Scan(ctx, &existing)
	if err == nil {
		err = o.db.NewRaw("SELECT @@lower_case_table_names > 0").Scan(ctx, &caseless)
	}
	if err != nil {
		return nil, err
	}
	for _, t := range tables(d.cfg.Table) {
		i := slices.IndexFunc(existing, func(name string) bool { return strings.EqualFold(name, t.name) })
		switch {
		case i < 0:
			names = append(names, t.name)
		case caseless || slices.Contains(existing, t.name):
		default:
			return nil, fmt.Errorf("%w: the database has no table %[2]s but a table %[3]s: RENAME TABLE %[3]s TO %[2]s. If it "+
				"has the tags, you can also give --mysql-table %[3]s", allocator.ErrRefused, t.name, existing[i])
		}
	}
	if !slices.Contains(names, "leaf_installation") {
		err = d.checkName(ctx, o, caseless)
	}
	if err == nil && !slices.Contains(names, d.cfg.Table) {
		if o.layout, err = inspect(ctx, o.db, d.cfg.Table); err == nil {
			err = o.refuse()
		}
	}
	return names, err
}

// checkName refuses another table of tags than the installation uses: it would begin at 1.
func (d *Database) checkName(ctx context.Context, o *opened, caseless bool) error {
	have, err := o.owner(ctx)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err == nil && have.Alloc != d.cfg.Table && !(caseless && strings.EqualFold(have.Alloc, d.cfg.Table)):
		err = fmt.Errorf("%w: installation %s keeps its tags in the table %s of this database, not in %s: give "+
			"--mysql-table %[3]s",
			allocator.ErrRefused, have.Installation, have.Alloc, d.cfg.Table)
	}
	return err
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
