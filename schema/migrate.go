package schema

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/uptrace/bun"
)

// tables are all that this package keeps, by their names. Each statement can
// be repeated, and leaves a table that is there alone: so there is no order, no version and
// no lock to keep, and generators that start together are in nobody's way.
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

// SQL is the statements that create the tables, for whoever may create them.
func SQL() string {
	var b strings.Builder
	for _, t := range tables {
		b.WriteString(t.create + ";\n")
	}
	return b.String()
}

// missing returns the names of the tables that are not there.
func missing(ctx context.Context, db bun.IDB) ([]string, error) {
	var there []string
	err := db.NewRaw(`SELECT table_name AS name FROM information_schema.tables
		WHERE table_schema = DATABASE() AND table_name LIKE 'leaf\_%'`).Scan(ctx, &there)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range tables {
		if !slices.Contains(there, t.name) {
			names = append(names, t.name)
		}
	}
	return names, nil
}

// create creates these tables.
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

// lacking names what the account may not do and must; empty: nothing. It changes no row.
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
