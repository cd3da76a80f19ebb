package kit

import "testing"

// Drills of failovers rest on this: the new primary knows what the replica had, and not what came later.
func TestPair(t *testing.T) {
	t.Parallel()
	p := NewPair(t, "leaf_pair")
	rows := func(dsn string, want int) {
		t.Helper()
		var n int
		Must(t, query(dsn, "SELECT COUNT(*) FROM t", &n))
		if n != want {
			t.Errorf("%d rows, want %d", n, want)
		}
	}
	SQL(t, p.DSN(), "CREATE TABLE t (id INT PRIMARY KEY)")
	for range 2 { // each server becomes the primary once
		SQL(t, p.DSN(), "DELETE FROM t", "INSERT INTO t VALUES (1)")
		p.Replicate()
		p.Lag(true)
		SQL(t, p.DSN(), "INSERT INTO t VALUES (2)")
		p.FailOver()
		rows(p.DSN(), 1)
		SQL(t, p.DSN(), "INSERT INTO t VALUES (3)")
		p.Replicate()
		rows(p.Replica().DSN("leaf_pair"), 2)
	}

	p.Split()
	SQL(t, p.DSN(), "INSERT INTO t VALUES (4)")
	SQL(t, p.Replica().DSN("leaf_pair"), "INSERT INTO t VALUES (4), (5)")
	rows(p.DSN(), 3)
	rows(p.Replica().DSN("leaf_pair"), 4)
}
