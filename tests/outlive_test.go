package tests

import (
	"database/sql"
	"os"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
)

// A tag is deleted and made again under load: by SQL at max_id 1, by commands, or by commands after a restore
// from before there was such a tag. It goes on above all that was handed out.
func TestTagOutlivesItself(t *testing.T) {
	t.Parallel()
	remove := func(t *testing.T, url string, _ *sql.DB) { leafOK(t, "tag", "rm", "order", "--yes", "-s", url) }
	add := func(t *testing.T, url string, _ *sql.DB) {
		leafOK(t, "tag", "add", "order", "--step", "500", "-s", url)
	}
	for name, c := range map[string]struct {
		remove, add func(t *testing.T, url string, db *sql.DB)
	}{
		"SQL": {
			func(t *testing.T, _ string, db *sql.DB) {
				execute(t, db, "DELETE FROM leaf_alloc WHERE biz_tag = 'order'")
			},
			func(t *testing.T, _ string, db *sql.DB) {
				execute(t, db, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 500)")
			},
		},
		"commands": {remove, add},
		"commands and a restore": {
			func(t *testing.T, url string, db *sql.DB) {
				remove(t, url, db)
				setBack(t, db)
			}, add,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := mariadb.NewDatabase(t)
			db := openDB(t, dsn)
			url := newNATS(t).ClientURL()
			join(t, url, dsn, []string{"one", "two", "three"}, "--max-step", "1000", "--tag-refresh", "200ms")
			backUp(t, db)
			c.add(t, url, db)
			l := startLoad(t, loadConfig{
				tag: "order", callers: 4, maxBatch: 200, patience: 3 * time.Second, mayGiveUp: true,
				expected: []bus.Reason{bus.UnknownTag},
			}, url, url)
			for round := range 6 {
				ahead(t, l, 10_000)
				c.remove(t, url, db)
				if before := l.refusals(bus.UnknownTag); round%2 == 1 { // else it is made again at once
					testkit.Eventually(t, "a tag that nobody knows", func() bool {
						l.check()
						return l.refusals(bus.UnknownTag) > before+20
					})
				}
				c.add(t, url, db)
			}
			ahead(t, l, 20_000)
			l.stop()
			if n := l.gaveUp.Load(); n > 0 {
				t.Errorf("%d calls were not answered", n)
			}
		})
	}
}

// An operator moved max_id, and the database is restored from before that. Generators with empty folders
// still hand out no ID below it.
func TestMaxIDOutlivesRestore(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	db := openDB(t, dsn)
	url := newNATS(t).ClientURL()
	generators := join(t, url, dsn, []string{"one", "two"}, "--tag", "order:500")
	c := client(t, url)
	takeOne(t, c, "order")
	backUp(t, db)
	leafOK(t, "tag", "set", "order", "--max-id", "1000000", "-s", url)
	for _, g := range generators {
		g.stop()
		must(t, os.RemoveAll(g.folder))
	}
	setBack(t, db)
	for node, g := range generators {
		g.again(t, "--mysql", dsn, "--node", node)
	}
	for range 20 {
		if id := takeOne(t, c, "order"); id < 1_000_000 {
			t.Fatalf("ID %d after max_id was moved to 1000000", id)
		}
	}
	noticed(t, connect(t, url), "order")
}
