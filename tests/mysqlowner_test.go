package tests

import (
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
)

// Two generators of one installation with two databases would both begin at 1:
// the second one is refused, and so is the first after its DSN was changed.
func TestOneDatabaseAnInstallation(t *testing.T) {
	t.Parallel()
	one, other := mariadb.NewDatabase(t), mariadb.NewDatabase(t)
	server := newNATS(t)
	g := serve(t, t.TempDir(), "-s", server.ClientURL(), "--mysql", one, "--tag", "order")
	want := []string{"keeps its tags in", "--mysql"}
	leaf(t, "serve", "--http", "", "-s", server.ClientURL(), "--mysql", other).want(t, 1, want...)
	if names := tablesOf(t, openDB(t, other)); names != nil {
		t.Errorf("in a database that was refused, the tables %v were created", names)
	}
	// Neither does a database that knows an owner of its own.
	foreign := embed(t, "--mysql", other)
	leaf(t, "serve", "--http", "", "-s", server.ClientURL(), "--mysql", other).want(t, 1, want...)
	foreign.stop()
	g.stop()
	runLeaf(t, command(t, g.dir, nil, []string{"serve", "--http", "", "-s", server.ClientURL(), "--mysql", other})).want(t, 1, want...)
	g.again(t, "--mysql", one).stop()
}

// A database that lost everything is not begun at 1 again.
func TestEmptiedDatabase(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	g := embed(t, "--mysql", dsn, "--tag", "order")
	takeOne(t, client(t, g.url), "order")
	g.stop()
	execute(t, openDB(t, dsn), "DROP TABLE leaf_alloc, leaf_mark, leaf_installation")
	r := runLeaf(t, command(t, g.dir, nil, []string{"serve", "--http", "", "--listen", "127.0.0.1:0", "--mysql", dsn, "--tag", "order"}))
	r.want(t, 1, "lost its state", "restore", "leaf_installation")
}

// A generator that runs puts its name back where it was removed, and ends where
// there is another's: that one takes the same workers.
func TestDatabaseChangesItsOwner(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	db := openDB(t, dsn)
	g := embed(t, "--mysql", dsn, "--tag", "order", "--tag-refresh", "100ms")
	nc := connect(t, g.url)
	snowflake(t, nc)
	var owner string
	must(t, db.QueryRowContext(t.Context(), "SELECT id FROM leaf_installation").Scan(&owner))
	execute(t, db, "DELETE FROM leaf_installation")
	testkit.Eventually(t, "the row to be back", func() bool {
		var now string
		return db.QueryRowContext(t.Context(), "SELECT id FROM leaf_installation").Scan(&now) == nil && now == owner
	})
	takeOne(t, bus.NewClient(nc), "order")
	snowflake(t, nc)

	execute(t, db, "UPDATE leaf_installation SET id = 'another'")
	if status := g.wait(patience); status != 1 {
		t.Errorf("exit status %d", status)
	}
	if text := g.stderr.String(); !strings.Contains(text, owner) || !strings.Contains(text, "another") {
		t.Errorf("stderr does not say why: %s", text)
	}
}

// Where the folder's worker comes from the installation of another database
// than is named now, it is not used before that one has said whose it is.
func TestWorkerOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	g := embed(t, "--mysql", mariadb.NewDatabase(t))
	snowflake(t, connect(t, g.url))
	g.stop()
	p, elsewhere := newProxy(t, mariadb.NewDatabase(t))
	p.Hang(true)
	g = serveLacking(t, "segments,snowflakes", g.dir, append(g.place(), "--mysql", elsewhere)...)
	refused(t, ask(t, connect(t, g.url), "leaf.snowflake", ""), 503, bus.NoWorkerID)
	p.Hang(false)
	if status := g.wait(patience); status != 1 {
		t.Errorf("exit status %d; the database is another one", status)
	}
}
