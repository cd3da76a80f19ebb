package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// databases are faults of MySQL. "It went back" means: max_id is below what was claimed. Service goes on then, nobody
// is refused, and operators hear of it.
var databases = []scenario{
	{
		fault: "the database is set back", in: []setup{inMySQL}, alert: "segment.regressed.order",
		strike: func(in *installation) {
			for range 2 {
				in.backUp()
				in.ahead(3000)
				in.setBack()
				in.ahead(3000)
			}
			e := in.alerted("segment.regressed.order", "")
			if e.Action != "advanced" || e.Store != "mysql" || e.Got >= e.Seen {
				in.Errorf("alert %+v", e)
			}
		},
	},
	{
		// Many tags are used for the first time at once. What an operator decided outlives the restore, too.
		fault: "the database is set back, and all that knew better are gone", in: []setup{inMySQL},
		flags: manyTags("--tag", ":10"), tags: append([]string{order, snowflakes}, manyTags("", "")...),
		fails: callers.AnyFailure,
		strike: func(in *installation) {
			highest := in.take(idle)
			in.sql("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('sql', 77, 100)")
			in.backUp()
			if id := in.take("sql"); id != 77 {
				in.Errorf("the first ID of a row with max_id 77 is %d", id)
			}
			in.more(500)
			floor := in.highest() + 1_000_000
			in.leaf("tag", "set", order, "--max-id", fmt.Sprint(floor))
			in.leaf("tag", "rm", idle, "--yes")
			in.leaf("tag", "pause", "sql")
			in.each(in.kill, in.forgetFolder)
			stream, err := in.js.Stream(in.Context(), events.Stream)
			kit.Must(in.T, err)
			kit.Must(in.T, stream.Purge(in.Context()))
			in.setBack()
			in.callers.Floor(order, floor)
			in.each(in.again)
			in.above(idle, highest+1) // it is back, says the database
			in.refused("sql", 1, bus.Paused, "")
			in.leaf("tag", "resume", "sql")
			in.above("sql", 78)
			kit.Leaf(in.T, "tag", "set", "sql", "--max-id", "50", "-s", in.url).Want(in.T, 1, "conflict")
			in.more(500)
		},
	},
	{
		// A database that hangs breaks no connection and answers nothing. Nobody hangs with it.
		fault: "the database hangs", in: []setup{mysqlServer},
		flags: []string{"--max-wait", "2s", "--drain-timeout", "1s"},
		fails: func(c callers.Call) bool { return overHTTP(c) || unless(snowflakes, coupon, invoice)(c) },
		strike: func(in *installation) {
			kit.Must(in.T, in.mariadb.Freeze())
			in.answered(20, in.send(20, "100000", idle), bus.TimedOut, bus.StoreUnavailable)
			in.signal(1, syscall.SIGTERM)
			in.ended(1).Want(in.T, 0)
			kit.Must(in.T, in.mariadb.Thaw())
			in.again(1)
			in.ahead(500)
			in.ready(2)
		},
	},
	{
		// Any generator may get a command. The one that is cut off passes it on.
		fault: "one generator is cut off from the database", in: []setup{inMySQL}, tags: none,
		strike: func(in *installation) {
			for what, cut := range map[string]func(on bool){"refused": in.ways[0].Refuse, "hung": in.ways[0].Hang} {
				cut(true)
				for i := range 4 {
					tag := fmt.Sprint(what, i)
					in.leaf("tag", "add", tag)
					in.leaf("tag", "set", tag, "--max-id", "500")
					in.leaf("tag", "rm", tag, "--yes")
				}
				cut(false)
			}
			in.each(func(i int) { in.ways[i].Refuse(true) })
			kit.Leaf(in.T, "tag", "add", "nowhere", "-s", in.url).Want(in.T, 1, "generator n0: ", "generator n1: ")
			in.each(func(i int) { in.ways[i].Refuse(false) })
		},
	},
	{
		// Segments last. Nobody notices but those who look.
		fault: "the database is away, and read-only", in: []setup{mysqlServer}, tags: []string{"long", snowflakes, invoice},
		flags: []string{"--tag", "long:20000", "--max-step", "20000"}, alert: "segment.refill_failed.long",
		strike: func(in *installation) {
			in.more(500)
			kit.Must(in.T, in.mariadb.Stop())
			in.lacking(2, "store", "MySQL")
			in.alerted("segment.refill_failed.long", "")
			in.oneAlert("segment.refill_failed.long")
			in.leaf("tag", "set", invoice, "--max-id", fmt.Sprint(in.take(invoice)+1000)) // it needs no database
			kit.Must(in.T, in.mariadb.Run())
			in.ready(2)
			in.sql("SET GLOBAL read_only = 1")
			in.lacking(2, "store", "read")
			in.more(100)
			in.sql("SET GLOBAL read_only = 0")
			in.ready(2)
		},
	},
	{
		// A mistake in the configuration shows at the first start. Later a password changes without a restart. A start
		// beside the change waits, and nothing shows the password.
		fault: "the database lets a generator in no longer", in: []setup{mysqlAlone}, tags: none,
		strike: func(in *installation) {
			cfg := parseDSN(in.T, in.dsn)
			cfg.User, cfg.Passwd = cfg.DBName[len(cfg.DBName)-12:], "secret-word"
			shown := ""
			refused := func(says string) {
				r := kit.Leaf(in.T, "serve", "-s", in.url, "--http", "", "--data-dir", in.TempDir(), "--mysql", cfg.FormatDSN())
				if r.Want(in.T, 1, says); r.Stdout != "" {
					in.Errorf("%s: it was ready: %s", says, r.Stdout)
				}
				shown += r.Stderr
			}
			in.sql("CREATE USER " + cfg.User + " IDENTIFIED BY 'secret-other'")
			refused("check the user and the password")
			in.sql("ALTER USER " + cfg.User + " IDENTIFIED BY 'secret-word'")
			refused("give the account") // the database, and then its tables
			in.sql("GRANT SELECT ON " + cfg.DBName + ".* TO " + cfg.User)
			refused("give the account")
			in.sql("GRANT ALL ON " + cfg.DBName + ".* TO " + cfg.User)

			file := filepath.Join(in.TempDir(), "dsn")
			change := func(password string) { // both the account and the file
				in.sql("ALTER USER " + cfg.User + " IDENTIFIED BY '" + password + "'")
				cfg.Passwd = password
				kit.Must(in.T, os.WriteFile(file, []byte(cfg.FormatDSN()), 0o600))
			}
			change("secret-word")
			g := kit.Join(in.T, in.url, "--mysql-file", file, "--tag-refresh", "200ms")
			change("secret-new")
			in.sql("KILL USER " + cfg.User)
			testkit.Eventually(in.T, "a connection with the new password", func() bool {
				return in.number("SELECT COUNT(*) FROM information_schema.processlist WHERE user = '"+cfg.User+"'") > 0
			})
			in.ready(2)
			shown += g.Stderr()
			kit.Must(in.T, g.Stop())
			in.sql("ALTER USER " + cfg.User + " IDENTIFIED BY 'secret-late'")
			g = kit.Begin(in.T, g.Dir, g.Arguments()...)
			in.lacking(1, "store", "")
			shown += in.leaf("nodes", "--json")
			change("secret-late")
			in.ready(2)
			in.sql("DROP USER " + cfg.User)
			if shown += g.Stderr(); strings.Contains(shown, "secret-") {
				in.Errorf("the password is shown: %s", shown)
			}
		},
	},
	{
		fault: "a row has the name of a strict tag", in: []setup{inMySQL}, alert: "tag.shadowed.invoice",
		strike: func(in *installation) {
			in.sql("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('invoice', 5000000, 100)")
			in.alerted("tag.shadowed.invoice", "")
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
			in.each(func(i int) { in.ended(i).Want(in.T, 1, "another-installation") })
			in.serve(0).Want(in.T, 1, "another-installation")
			in.ways[0].Refuse(true)
			in.begin(0) // it learns that later
			in.ways[0].Refuse(false)
			in.ended(0).Want(in.T, 1, "another-installation")
		},
	},
}

// manyTags are the names of 40 tags, each with something before and after it.
func manyTags(flag, step string) (all []string) {
	for i := range 40 {
		if flag != "" {
			all = append(all, flag)
		}
		all = append(all, fmt.Sprint("many", i, step))
	}
	return all
}
