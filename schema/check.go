package schema

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/uptrace/bun"

	"github.com/leafbus/leafbus/allocator"
)

// Check implements [allocator.Numbers]. Nothing is taken from a table that it found unfit.
func (d *Database) Check(ctx context.Context) error {
	return d.call(ctx, "", func(o *opened) error {
		var answer string
		if err := o.db.NewRaw(askReadOnly).Scan(ctx, &answer); err != nil {
			return err
		}
		if err := cmp.Or(writable(answer), d.checkOwner(ctx, o)); err != nil {
			return err
		}
		return d.checkTable(ctx, o)
	})
}

// checkTable looks whether the table of the tags was altered, and keeps what it finds.
func (d *Database) checkTable(ctx context.Context, o *opened) error {
	l, err := inspect(ctx, o.db, o.table)
	if err != nil {
		return err
	}
	if len(l.flaws) > 0 {
		l.description = o.description
	}
	d.fit.Store(&opened{o.db, l})
	return l.altered()
}

// altered is the error of a table that has flaws since it was opened. It may be altered back.
func (l *layout) altered() error {
	if len(l.flaws) == 0 {
		return nil
	}
	return fmt.Errorf("%w: it was altered: %v", allocator.ErrUnavailable, l.refuse())
}

// layout is what the database says about the table of the tags.
type layout struct {
	table       string // its name
	description string // name of the column; empty: there is none
	flaws       []string
}

// refuse is the error of a table with flaws; nil: it has none.
func (l *layout) refuse() error {
	if len(l.flaws) == 0 {
		return nil
	}
	return fmt.Errorf("%w: table %s cannot be used: %s", allocator.ErrRefused, l.table, strings.Join(l.flaws, "; "))
}

func (l *layout) flaw(format string, a ...any) { l.flaws = append(l.flaws, fmt.Sprintf(format, a...)) }

const askTable = `SELECT t.table_name AS name, t.table_type AS kind, COALESCE(t.engine, '') AS engine,
	(SELECT COUNT(*) FROM information_schema.triggers
		WHERE event_object_schema = DATABASE() AND event_object_table = ?0 AND event_manipulation = 'UPDATE') > 0 AS triggers,
	(SELECT COUNT(*) FROM (SELECT index_name FROM information_schema.statistics
		WHERE table_schema = DATABASE() AND table_name = ?0 GROUP BY index_name
		HAVING MAX(non_unique) = 0 AND COUNT(*) = 1 AND LOWER(MIN(column_name)) = 'biz_tag') AS of_tag) > 0 AS unique_tag
	FROM information_schema.tables t WHERE t.table_schema = DATABASE() AND t.table_name = ?0`

// inspect looks at the table of the tags, and names all that makes it unfit.
func inspect(ctx context.Context, db bun.IDB, name string) (l layout, err error) {
	var table struct {
		Name, Kind, Engine  string
		Triggers, UniqueTag bool
	}
	if err := db.NewRaw(askTable, name).Scan(ctx, &table); err != nil {
		return l, err
	}
	l.table = table.Name
	columns, err := columns(ctx, db, name)
	if err != nil {
		return l, err
	}
	if table.Kind != "BASE TABLE" {
		l.flaw("it is a %s; it must be a table", strings.ToLower(table.Kind))
	} else if table.Engine != "InnoDB" {
		l.flaw("its engine %s may have no transactions, so a crash could bring IDs back; ALTER TABLE %s ENGINE=InnoDB",
			table.Engine, l.table)
	}
	if table.Triggers {
		l.flaw("it has a trigger on UPDATE, which could change what a generator has reserved, or hide it from the " +
			"generator; drop the trigger")
	}
	for _, name := range []string{"biz_tag", "max_id", "step"} {
		if _, ok := columns[name]; !ok {
			l.flaw("it has no column %s", name)
			return l, nil
		}
	}
	l.inspectColumns(columns)
	if !table.UniqueTag {
		l.flaw("biz_tag is not unique, so a tag could have two rows and its IDs repeat; ALTER TABLE %s ADD PRIMARY "+
			"KEY (biz_tag)", l.table)
	}
	return l, nil
}

type column struct {
	Name     string
	Type     string // bigint
	Full     string // bigint(20) unsigned
	Nullable string // YES, NO
	Computed bool
}

// columns returns the columns of a table by their names in small letters.
func columns(ctx context.Context, db bun.IDB, table string) (map[string]column, error) {
	var list []column
	err := db.NewRaw(`SELECT LOWER(column_name) AS name, data_type AS type, column_type AS full, is_nullable AS nullable,
		LOCATE('GENERATED', UPPER(extra)) > 0 AND LOCATE('DEFAULT_GENERATED', UPPER(extra)) = 0 AS computed
		FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = ?`, table).Scan(ctx, &list)
	byName := make(map[string]column, len(list))
	for _, c := range list {
		byName[c.Name] = c
	}
	return byName, err
}

// inspectColumns names what is wrong with columns that are all there.
func (l *layout) inspectColumns(columns map[string]column) {
	for _, name := range []string{"desc", "description"} { // the second, if there are both
		if _, ok := columns[name]; ok {
			l.description = name
		}
	}
	if c := columns["biz_tag"]; c.Type != "varchar" && c.Type != "char" {
		l.flaw("biz_tag is %s; it must be VARCHAR(128)", c.Full)
	}
	if c := columns["max_id"]; c.Type != "bigint" || strings.Contains(c.Full, "unsigned") {
		l.flaw("max_id is %s; it must be a signed BIGINT, or IDs would wrap or stop early", c.Full)
	}
	c := columns["step"]
	if !strings.HasSuffix(c.Type, "int") || c.Type == "bigint" && strings.Contains(c.Full, "unsigned") {
		l.flaw("step is %s; it must be an INT or a signed BIGINT", c.Full)
	}
	for _, name := range []string{"biz_tag", "max_id", "step"} {
		switch c := columns[name]; {
		case c.Computed:
			l.flaw("%s is a generated column; it must be one that can be written", name)
		case c.Nullable != "NO":
			l.flaw("%s may be NULL; it must be NOT NULL", name)
		}
	}
}
