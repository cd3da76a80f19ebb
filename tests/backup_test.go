package tests

import (
	"database/sql"
	"strings"
	"testing"
)

// backUp keeps a copy of leaf's tables in the same database.
func backUp(t *testing.T, db *sql.DB) {
	t.Helper()
	for _, table := range leafTables {
		execute(t, db, "DROP TABLE IF EXISTS saved_"+table, "CREATE TABLE saved_"+table+" LIKE "+table,
			"INSERT INTO saved_"+table+" SELECT * FROM "+table)
	}
}

// setBack gives leaf's tables the rows of the copy, in one transaction, while generators use them.
func setBack(t *testing.T, db *sql.DB) {
	t.Helper()
	for tried := 1; ; tried++ {
		err := trySetBack(t, db)
		if err == nil {
			return
		}
		if tried == 20 || !strings.Contains(err.Error(), "Deadlock") { // with a generator's write
			t.Fatal(err)
		}
	}
}

func trySetBack(t *testing.T, db *sql.DB) error {
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, table := range leafTables {
		for _, statement := range []string{"DELETE FROM " + table, "INSERT INTO " + table + " SELECT * FROM saved_" + table} {
			if _, err := tx.ExecContext(t.Context(), statement); err != nil {
				return err
			}
		}
	}
	return tx.Commit()
}
