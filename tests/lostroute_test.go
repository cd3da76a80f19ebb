package tests

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
)

// One of three NATS servers loses its routes for a moment. The generators elsewhere reserve meanwhile, and
// the one at that server hears nothing of it. Later the database is set back to that moment, and those who
// know better still run, or have died.
func TestLostRoute(t *testing.T) {
	t.Parallel()
	for name, alone := range map[string]bool{"peers live": false, "peers died": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := mariadb.NewDatabase(t)
			db := openDB(t, dsn)
			c := newThreeServers(t)
			var ncs [3]*nats.Conn
			var generators [3]*generator
			for i := range ncs {
				generators[i] = serve(t, t.TempDir(), "-s", c.url(i), "--mysql", dsn, "--node", fmt.Sprint("n", i),
					"--tag", "order:500", "--max-step", "1000")
				ncs[i] = connect(t, c.url(i))
			}
			var checker allocatortest.Checker
			var refused error
			take := func(i int, count int64) {
				t.Helper()
				ranges, err := bus.NewClient(ncs[i]).Take(testkit.Context(t), "order", count)
				if err != nil {
					refused = err
				}
				checker.Add(ranges...)
			}
			usedBy(t, ncs[0], "order", len(ncs), &checker)

			backUp(t, db)
			before := maxIDOf(t, db, "order")
			deaf := c.follower("KV_" + bus.BucketLedger)
			other := 1 - deaf
			c.cut(deaf)
			for maxIDOf(t, db, "order") < before+4000 {
				take(other, 500)
			}
			c.heal(deaf)
			for i, g := range generators {
				if alone && i != deaf {
					g.kill()
				}
			}
			setBack(t, db)

			for range 60 {
				take(deaf, 200)
			}
			_, err := checker.Check()
			must(t, err)
			must(t, refused)
			var taken audit.Taken
			taken.Add("order", checker.Ranges()...)
			auditAgrees(t, c.url(deaf), audit.Options{Taken: &taken})
			noticed(t, ncs[0], "order")
		})
	}
}
