package faults

import (
	"fmt"
	"syscall"

	"github.com/go-sql-driver/mysql"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// databases are faults of MySQL. "It went back" means: max_id is below what was claimed. Service goes on then, nobody
// is refused, and each generator publishes at most one alert an episode.
var databases = []scenario{
	{
		fault: "the database is set back", in: []setup{mysqlAlone, inMySQL}, alerts: []string{"segment.regressed.order"},
		strike: func(in *installation) {
			for range 2 {
				in.backUp()
				in.ahead(3000)
				in.setBack()
				in.ahead(3000)
			}
			if e := in.alerted("segment.regressed.order"); e.Action != "advanced" || e.Store != "mysql" || e.Got >= e.Seen {
				in.Errorf("alert %+v", e)
			}
		},
	},
	{
		fault: "the database is restored by a dump, which makes the tables anew", in: []setup{inMySQL},
		fails: callers.Refused(bus.UnknownTag), alerts: []string{"segment.regressed.order"},
		strike: func(in *installation) {
			in.backUp()
			in.ahead(3000)
			in.makeAnew()
			in.ahead(3000)
			in.join() // one that knows nothing
			in.more(200)
		},
	},
	{
		fault: "the database is set back, and all that knew better are gone", in: []setup{inMySQL}, tags: none,
		strike: func(in *installation) {
			in.backUp()
			for range 20 {
				in.take(order)
			}
			highest := in.take(idle)
			in.leaf("tag", "set", order, "--max-id", "1000000")
			in.leaf("tag", "rm", idle, "--yes")
			in.each(in.kill, in.forgetFolder)
			stream, err := in.js.Stream(in.Context(), bus.EventStream)
			kit.Must(in.T, err)
			kit.Must(in.T, stream.Purge(in.Context()))
			in.setBack()
			in.each(func(i int) { in.again(i) })
			in.above(order, 1_000_000) // also what an operator decided
			in.leaf("tag", "set", idle, "--description", "it is back, says the database")
			in.above(idle, highest+1)
		},
	},
	{
		fault: "a failover leads to a copy, and then to a stale one", in: []setup{inMySQL}, fails: once,
		alerts: []string{"segment.regressed.order"},
		strike: func(in *installation) {
			addr, copied := in.second()
			in.lead("", 0, 1, 2)
			in.copyTables(in.db, copied)
			in.lead(addr, 0, 1, 2)
			in.ahead(2000)
			in.quiet("segment.regressed.order") // nothing was lost
			in.lead(in.address(), 0, 1, 2)      // which did not follow
			in.ahead(2000)
		},
	},
	{
		fault: "two databases both accept writes", in: []setup{inMySQL}, fails: once,
		alerts: []string{"segment.regressed.order"},
		strike: func(in *installation) {
			addr, other := in.second()
			in.lead("", 0, 1, 2)
			in.copyTables(in.db, other)
			in.lead(in.address(), 0)
			in.lead(addr, 1, 2)
			before := in.maxID(order)
			testkit.Eventually(in.T, "ranges of both", func() bool { in.more(20); return in.maxID(order) > before+1500 })
			in.ahead(1500)
			in.lead(addr, 0)
			in.ahead(3000)
		},
	},
	{
		fault: "the database is killed amid reservations", in: []setup{mysqlServer}, fails: unless(snowflakes, coupon, invoice),
		strike: func(in *installation) {
			for range 3 {
				in.more(50 + in.random.Int64N(200))
				kit.Must(in.T, in.mariadb.Kill())
				kit.Must(in.T, in.mariadb.Run())
				if maxID, highest := in.maxID(order), in.highest(); maxID <= highest {
					in.Fatalf("max_id is %d, and %d was handed out", maxID, highest)
				}
				in.ahead(500)
			}
			in.ready(2)
		},
	},
	{
		// Segments last. Nobody notices but those who look.
		fault: "the database is away", in: []setup{mysqlServer}, flags: []string{"--tag", "long:20000", "--max-step", "20000"},
		tags: []string{"long", snowflakes, invoice}, alerts: []string{"segment.refill_failed.long"},
		strike: func(in *installation) {
			in.more(500)
			kit.Must(in.T, in.mariadb.Stop())
			in.lacks(2, "store", "MySQL")
			in.more(100)
			for node, n := range in.count("alert.segment.refill_failed.long") {
				if n != 1 {
					in.Errorf("%s published %d alerts of one episode", node, n)
				}
			}
			in.leaf("tag", "set", invoice, "--max-id", fmt.Sprint(in.take(invoice)+1000)) // it needs no database
			kit.Must(in.T, in.mariadb.Run())
			in.ready(2)
		},
	},
	{
		fault: "the database is read-only", in: []setup{mysqlServer}, flags: []string{"--tag", "long:20000", "--max-step", "20000"},
		tags: []string{"long", snowflakes, invoice},
		strike: func(in *installation) {
			in.more(500)
			in.sql("SET GLOBAL read_only = 1")
			in.lacks(2, "store", "read")
			in.sql("SET GLOBAL read_only = 0")
			in.ready(2)
		},
	},
	{
		// A database that hangs breaks no connection and answers nothing. Nobody hangs with it.
		fault: "the database hangs", in: []setup{mysqlServer}, flags: []string{"--max-wait", "2s", "--drain-timeout", "1s"},
		fails: func(c callers.Call) bool { return overHTTP(c) || unless(snowflakes, coupon, invoice)(c) },
		strike: func(in *installation) {
			kit.Must(in.T, in.mariadb.Freeze())
			inbox, answers := in.inbox()
			for range 20 {
				kit.Must(in.T, in.nc.PublishRequest(bus.SubjectSegment+"."+idle, inbox, []byte("100000")))
			}
			for range 20 {
				if err := answer(in, answers); !is(err, bus.TimedOut) && !is(err, bus.StoreUnavailable) {
					in.Errorf("answered %v", err)
				}
			}
			kit.Must(in.T, in.nodes[1].Signal(syscall.SIGTERM))
			kit.Finish(in.T, in.nodes[1].Process).Want(in.T, 0)
			kit.Must(in.T, in.mariadb.Thaw())
			in.again(1)
			in.ahead(500)
		},
	},
	{
		fault: "another client locks a row", in: []setup{inMySQL}, tags: []string{idle, coupon, snowflakes},
		flags: []string{"--max-wait", "1s"}, fails: unless(coupon, snowflakes),
		strike: func(in *installation) {
			in.locked([]string{"BEGIN", "SELECT * FROM leaf_alloc WHERE biz_tag = 'idle' FOR UPDATE"}, "ROLLBACK", func() {
				in.refused(idle, 1000, bus.StoreUnavailable, "")
				for range 30 {
					in.take(order) // another row
				}
			})
			in.ahead(500)
		},
	},
	{
		fault: "another client locks the table, as a dump does", in: []setup{mysqlAlone}, flags: []string{"--max-wait", "1s"},
		fails: unless(coupon, snowflakes, invoice),
		strike: func(in *installation) {
			in.locked([]string{"LOCK TABLES leaf_alloc READ"}, "UNLOCK TABLES", func() {
				in.refused(idle, 1000, bus.StoreUnavailable, "")
				in.more(50)
			})
			in.ahead(500)
		},
	},
	{
		fault: "SQL takes a tag away, and puts it back at 1", in: []setup{inMySQL}, fails: callers.Refused(bus.UnknownTag),
		strike: func(in *installation) {
			for round := range 4 {
				in.ahead(1000)
				in.sql("DELETE FROM leaf_alloc WHERE biz_tag = 'order'")
				if round%2 == 0 { // else it is back before anybody looks
					in.refused(order, 1, bus.UnknownTag, "")
				}
				in.sql("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 100)")
				in.ahead(1000)
			}
		},
	},
	{
		fault: "a row has the name of a strict tag", in: []setup{inMySQL}, alerts: []string{"segment.shadowed.invoice"},
		strike: func(in *installation) {
			in.sql("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('invoice', 5000000, 100)")
			in.alerted("segment.shadowed.invoice")
			in.more(100)
			if id := in.take(invoice); id >= 5_000_000 || in.maxID(invoice) != 5_000_000 {
				in.Errorf("ID %d came: the row is served", id)
			}
			in.sql("DELETE FROM leaf_alloc WHERE biz_tag = 'invoice'")
		},
	},
	{
		fault: "the database becomes that of another installation", in: []setup{inMySQL}, tags: none,
		strike: func(in *installation) {
			in.take(order)
			in.sql("UPDATE leaf_installation SET id = 'another-installation'")
			for _, g := range in.nodes {
				kit.Finish(in.T, g.Process).Want(in.T, 1, "another-installation")
			}
			kit.Leaf(in.T, append([]string{"serve"}, in.nodes[0].Arguments()...)...).Want(in.T, 1, "another-installation")
		},
	},
}

// address is that of the first database.
func (in *installation) address() string {
	in.Helper()
	cfg, err := mysql.ParseDSN(in.dsn)
	kit.Must(in.T, err)
	return cfg.Addr
}

// locked runs f while another client holds locks.
func (in *installation) locked(lock []string, unlock string, f func()) {
	in.Helper()
	conn, err := in.db.Conn(in.Context())
	kit.Must(in.T, err)
	defer conn.Close()
	for _, s := range lock {
		_, err := conn.ExecContext(in.Context(), s)
		kit.Must(in.T, err)
	}
	f()
	if n := in.value("SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE()"); n > 16*int64(len(in.nodes))+4 {
		in.Errorf("%d connections are open: those that wait for the lock pile up", n)
	}
	_, err = conn.ExecContext(in.Context(), unlock)
	kit.Must(in.T, err)
}

// count is how many events each generator published on a subject.
func (in *installation) count(subject string) map[string]int {
	in.Helper()
	found := make(map[string]int)
	for _, e := range in.events(subject) {
		found[e.Node]++
	}
	return found
}
