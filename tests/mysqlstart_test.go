package tests

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
)

// account creates an account of the database with these rights, and returns
// the DSN with its name and password.
func account(t *testing.T, dsn, password, rights string) string {
	t.Helper()
	cfg := parseDSN(t, dsn)
	db := openDB(t, dsn)
	user := "'" + cfg.DBName + "'@'%'"
	execute(t, db, "CREATE USER "+user+" IDENTIFIED BY '"+password+"'", "GRANT "+rights+" ON "+cfg.DBName+".* TO "+user)
	t.Cleanup(func() { execute(t, db, "DROP USER "+user) })
	cfg.User, cfg.Passwd = cfg.DBName, password
	return cfg.FormatDSN()
}

// The database is away when a generator starts. That holds up neither the
// ready line nor snowflakes, where it is known whose the database is; requests
// for tags are told what is missing, and all is well when it comes.
func TestStartWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(t *testing.T, dsn string) (there string, come, leave func()){
		"port closed": func(t *testing.T, dsn string) (string, func(), func()) {
			r := newRelay(t)
			return through(t, dsn, r.addr), func() { r.lead(parseDSN(t, dsn).Addr) }, r.close
		},
		"hung": func(t *testing.T, dsn string) (string, func(), func()) {
			p, there := newProxy(t, dsn)
			p.Hang(true)
			return there, func() { p.Hang(false) }, func() { p.Hang(true) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, come, leave := away(t, mariadb.NewDatabase(t))
			server := newNATS(t)
			nc := connect(t, server.ClientURL())
			c := bus.NewClient(nc)
			args := []string{"-s", server.ClientURL(), "--mysql", dsn, "--tag", "order:100", "--max-wait", "500ms", "--drain-timeout", "1s"}

			g := serveLacking(t, "segments,snowflakes", t.TempDir(), args...)
			if g.waiting != "segments,snowflakes" {
				t.Errorf("the ready line says that %q are waited for", g.waiting)
			}
			// Another installation may use the same database, and the same workers.
			refused(t, ask(t, nc, "leaf.snowflake", ""), 503, bus.NoWorkerID)
			untilUnavailable(t, nc, "order")
			testkit.Eventually(t, "the state to say what is missing", func() bool {
				s := stateOf(t, c)
				return lacks(s, "store", "MySQL") && lacks(s, "worker", "MySQL")
			})
			// What the database would have to answer says why it cannot.
			leaf(t, "tag", "list", "-s", g.url, "--timeout", "30s").want(t, 1, "MySQL", "503 store_unavailable")
			come()
			if id := takeOne(t, c, "order"); id != 1 {
				t.Errorf("the first ID is %d", id)
			}
			snowflake(t, nc)
			testkit.Eventually(t, "nothing to be missing", func() bool { return stateOf(t, c).Ready })
			g.stop()

			leave()
			g = serveLacking(t, "segments", g.dir, args...)
			if !strings.HasPrefix(g.waiting, "segments") { // on a slow machine snowflakes, too
				t.Errorf("after a restart the ready line says that %q are waited for", g.waiting)
			}
			snowflake(t, nc)
			untilUnavailable(t, nc, "order")
			if s := stateOf(t, c); !lacks(s, "store", "") || slices.Contains(s.Missing, "worker") {
				t.Errorf("after a restart it lacks %v: %v", s.Missing, s.Reasons)
			}
			come()
			if id := takeOne(t, c, "order"); id <= 1 {
				t.Errorf("ID %d comes again", id)
			}
			g.stop()

			// One that still looks for its database ends when it is told to.
			leave()
			g = serveLacking(t, "segments", g.dir, args...)
			g.signal(syscall.SIGTERM)
			if status := g.wait(10 * time.Second); status != 0 {
				t.Errorf("exit status %d without a database", status)
			}
		})
	}
}

// The database is there, but far away: the tags that were asked for at the start
// come one after the other. Nobody is told meanwhile that there are no such tags.
func TestTagsOfTheStartAreNeverUnknown(t *testing.T) {
	t.Parallel()
	p, dsn := newProxy(t, mariadb.NewDatabase(t))
	p.Refuse(true)
	args := []string{"--mysql", dsn, "--max-wait", "100ms"}
	var tags []string
	for i := range 10 {
		tags = append(tags, fmt.Sprint("t", i))
		args = append(args, "--tag", tags[i])
	}
	nc := connect(t, embedLacking(t, "segments,snowflakes", args...).url)
	p.Delay(10 * time.Millisecond)
	p.Refuse(false)
	waiting := 0
	testkit.Eventually(t, "all tags", func() bool {
		if len(tags) == 0 {
			return true
		}
		msg := ask(t, nc, "leaf.segment."+tags[len(tags)-1], "") // the last ones first
		if len(msg.Header) == 0 {
			tags = tags[:len(tags)-1]
			return false
		}
		if e := refusal(t, msg); e.Code != 503 && e.Code != 504 {
			t.Fatalf("answered %+v", e)
		}
		waiting++
		return false
	})
	if waiting == 0 {
		t.Error("nobody had to wait for the tags")
	}
}

// untilUnavailable asks for an ID until it is known that the database is away:
// the first requests may have waited for it in vain.
func untilUnavailable(t *testing.T, nc *nats.Conn, tag string) {
	t.Helper()
	testkit.Eventually(t, "the word that the store is away", func() bool {
		msg := ask(t, nc, "leaf.segment."+tag, "")
		if len(msg.Header) == 0 {
			return false // from memory
		}
		e := refusal(t, msg)
		switch {
		case e.Code == 504 && e.Reason == string(bus.TimedOut):
			return false
		case e.Code != 503 || e.Reason != string(bus.StoreUnavailable) || !strings.Contains(e.Message, "MySQL"):
			t.Fatalf("answered %+v, want 503 store_unavailable that names MySQL", e)
		}
		return true
	})
}

// A wrong password is told as the server tells it, and printed nowhere.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	const right, wrong = "right_hunter2", "wrong_hunter2"
	dsn := mariadb.NewDatabase(t)
	there := account(t, dsn, right, "ALL")
	g := embedLacking(t, "segments,snowflakes", "--mysql", strings.Replace(there, right, wrong, 1), "--tag", "order", "--max-wait", "500ms")
	nc := connect(t, g.url)
	c := bus.NewClient(nc)
	testkit.Eventually(t, "the reason", func() bool { return lacks(stateOf(t, c), "store", "Access denied for user") })
	msg := ask(t, nc, "leaf.segment.order", "")
	told := []string{string(msg.Data)}
	for _, args := range [][]string{
		{"nodes"}, {"nodes", "--json"}, {"tag", "list"}, {"workers"}, {"get", "order", "--timeout", "1s"},
	} {
		r := leaf(t, append(args, "-s", g.url)...)
		told = append(told, r.stdout, r.stderr)
	}
	if r := leaf(t, "migrate", "--mysql", strings.Replace(there, right, wrong, 1)); r.status != 1 || !strings.Contains(r.stderr, "Access denied") {
		t.Errorf("leaf migrate ends with %d: %s", r.status, r.stderr)
	} else {
		told = append(told, r.stderr)
	}

	// Nobody restarts the generator when the account is mended.
	user, _, _ := strings.Cut(there, ":")
	execute(t, openDB(t, dsn), "SET PASSWORD FOR '"+user+"'@'%' = PASSWORD('"+wrong+"')")
	takeOne(t, c, "order")
	started := lastEvent[nodeEvent](t, jetStream(t, nc), "leaf.events.info.node.started."+g.node)
	if _, ok := started.Config["mysql"]; ok || started.Config["mysql-migrate"] != "true" {
		t.Errorf("the event of the start has the configuration %v", started.Config)
	}
	for _, msg := range answers(t, nc, "$SRV.STATS") {
		told = append(told, string(msg.Data))
	}
	told = append(told, everyEvent(t, jetStream(t, nc)))
	g.stop()

	told = append(told, g.stdout.String(), g.stderr.String())
	for _, text := range told {
		if strings.Contains(text, "hunter2") {
			t.Errorf("the password is in %s", text)
		}
	}
	if text := g.stderr.String(); !strings.Contains(text, "Access denied for user") {
		t.Errorf("stderr does not say what is wrong: %s", text)
	}
}

// everyEvent is all that the stream of events has by now.
func everyEvent(t *testing.T, js jetstream.JetStream) string {
	t.Helper()
	stream, err := js.Stream(t.Context(), bus.EventStream)
	must(t, err)
	var all strings.Builder
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		msg, err := stream.GetMsg(t.Context(), seq)
		must(t, err)
		fmt.Fprintln(&all, msg.Subject, msg.Header, string(msg.Data))
	}
	return all.String()
}

// What would let IDs repeat is refused at the start, with a sentence that says what it is.
func TestRefusedDatabases(t *testing.T) {
	t.Parallel()
	create := func(columns string) string { return "CREATE TABLE leaf_alloc (" + columns + ") ENGINE=InnoDB" }
	const times = "update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP"
	for name, c := range map[string]struct {
		table string
		want  string
	}{
		"max_id unsigned":    {create("biz_tag varchar(128) PRIMARY KEY, max_id bigint unsigned NOT NULL, step int NOT NULL, " + times), "max_id is bigint(20) unsigned"},
		"max_id int":         {create("biz_tag varchar(128) PRIMARY KEY, max_id int NOT NULL, step int NOT NULL, " + times), "max_id is int(11)"},
		"tags not unique":    {create("biz_tag varchar(128) NOT NULL, max_id bigint NOT NULL, step int NOT NULL, KEY (biz_tag), " + times), "biz_tag is not unique"},
		"no step":            {create("biz_tag varchar(128) PRIMARY KEY, max_id bigint NOT NULL, " + times), "no column step"},
		"no transactions":    {strings.Replace(create("biz_tag varchar(128) PRIMARY KEY, max_id bigint NOT NULL, step int NOT NULL, "+times), "InnoDB", "MyISAM", 1), "MyISAM"},
		"a view":             {"CREATE VIEW leaf_alloc AS SELECT 'a' AS biz_tag, 1 AS max_id, 1 AS step, NOW() AS update_time", "view"},
		"nothing is created": {"", "`leaf migrate`"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := mariadb.NewDatabase(t)
			args := []string{"serve", "--http", "", "--listen", "127.0.0.1:0", "--mysql", dsn}
			if c.table != "" {
				execute(t, openDB(t, dsn), c.table)
			} else {
				args = append(args, "--mysql-migrate=false")
			}
			r := leaf(t, args...)
			r.want(t, 1, c.want, "leaf_alloc")
			if lines := strings.Count(strings.TrimSpace(r.stderr[max(0, strings.Index(r.stderr, "\nleaf: ")):]), "\n"); lines != 0 {
				t.Errorf("the last word on stderr has %d lines too many: %s", lines, r.stderr)
			}
			if r.stdout != "" {
				t.Errorf("stdout says %q", r.stdout)
			}
			if names := tablesOf(t, openDB(t, dsn)); c.table == "" && names != nil {
				t.Errorf("the tables %v were created", names)
			}
		})
	}
}

// An installation has one store for life: two would both begin at 1.
func TestInstallationOfAnotherStore(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	kv, sql := embed(t), embed(t, "--mysql", dsn)
	for name, c := range map[string]struct {
		g    *generator
		args []string
		want []string
	}{
		"in KV":    {kv, []string{"--mysql", dsn}, []string{"store of tags", "kv", "mysql"}},
		"in MySQL": {sql, nil, []string{"store of tags", "kv", "mysql"}},
	} {
		leaf(t, append([]string{"serve", "--http", "", "-s", c.g.url}, c.args...)...).want(t, 1, c.want...)
		c.g.stop()
		again := append([]string{"serve", "--http", "", "--listen", "127.0.0.1:0"}, c.args...)
		r := runLeaf(t, command(t, c.g.dir, nil, again))
		if r.want(t, 1, c.want...); r.stdout != "" {
			t.Errorf("%s: stdout says %q", name, r.stdout)
		}
	}
}

func TestFlagsOfMySQL(t *testing.T) {
	t.Parallel()
	help := leafOK(t, "serve", "--help")
	for _, flag := range []string{"--mysql DSN", "$LEAF_MYSQL]", "--mysql-migrate", "--tag-refresh", "--shared-table", "$LEAF_SHARED_TABLE]"} {
		if !strings.Contains(help, flag) {
			t.Errorf("leaf serve --help does not mention %s", flag)
		}
	}
	for _, c := range []struct{ dsn, refresh string }{
		{"leaf:hunter2@tcp(127.0.0.1:3306)", "1s"}, // no database
		{"leaf:hunter2@tcp(127.0.0.1:3306)/", "1s"},
		{"leaf:hunter2@tcp(127.0.0.1:3306/leaf", "1s"},
		{"leaf:hunter2@127.0.0.1:3306/leaf", "1s"},
		{"leaf:hunter2/leaf", "1s"}, // no address: what is before the slash is the network
		{"leaf:/hunter2@tcp(127.0.0.1:3306)", "1s"},
		{"leaf:hunter2/%zz", "1s"},
		{"leaf:x/hunter2%zz@tcp(127.0.0.1:3306)", "1s"},
		{"mysql://leaf:hunter2@127.0.0.1:3306/leaf", "1s"},
		{"leaf:hunter2@tcp(127.0.0.1:3306)/leaf?timeout=soon", "1s"},
		{"leaf:hunter2@tcp(127.0.0.1:3306)/leaf", "99ms"},
		{"leaf:hunter2@tcp(127.0.0.1:3306)/leaf", "25h"},
		{"leaf:hunter2@tcp(127.0.0.1:3306)/leaf", "0"},
	} {
		want := "--mysql"
		if c.refresh != "1s" {
			want = "--tag-refresh"
		}
		r := leaf(t, "serve", "--http", "", "--listen", "127.0.0.1:0", "--mysql", c.dsn, "--tag-refresh", c.refresh)
		if r.want(t, 2, want); strings.Contains(r.stdout+r.stderr, "hunter2") {
			t.Errorf("the password is in %s", r.stderr)
		}
	}
}

type migration struct {
	Created  []string
	Tags     int
	Unserved []string
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	db := openDB(t, dsn)
	leaf(t, "migrate").want(t, 2, "--mysql")
	leaf(t, "migrate", "--mysql", dsn, "--check").want(t, 1, "leaf_alloc, leaf_mark", "`leaf migrate`")
	if names := tablesOf(t, db); names != nil {
		t.Errorf("--check created %v", names)
	}
	if out := leafOK(t, "migrate", "--mysql", dsn); !strings.HasPrefix(out, "created leaf_alloc, leaf_mark, leaf_installation") {
		t.Errorf("it says %q", out)
	}
	definitions := make(map[string]string)
	for _, name := range tablesOf(t, db) {
		definitions[name] = definition(t, db, name)
	}
	execute(t, db, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 77, 10), ('a b', 5, 10), ('none', 5, 0)")
	for _, args := range [][]string{nil, {"--check"}} {
		out := leafOK(t, append([]string{"migrate", "--mysql", dsn}, args...)...)
		if !strings.HasPrefix(out, "all tables existed; 1 tag") || strings.Count(out, "\nnot served: ") != 2 {
			t.Errorf("the second time it says %q", out)
		}
	}
	r := runLeaf(t, command(t, t.TempDir(), []string{"LEAF_MYSQL=" + dsn}, []string{"migrate", "--json"}))
	if m := parse[migration](t, []byte(r.stdout)); r.status != 0 || m.Created == nil || len(m.Created) != 0 || m.Tags != 1 || len(m.Unserved) != 2 {
		t.Errorf("as JSON: %d, %s", r.status, r.stdout)
	}

	// Who may not run it gives the SQL to who may.
	other := mariadb.NewDatabase(t)
	cfg := parseDSN(t, other)
	cfg.MultiStatements = true
	admin := openDB(t, cfg.FormatDSN())
	execute(t, admin, leafOK(t, "migrate", "--print"))
	for name, text := range definitions {
		if got := definition(t, admin, name); got != text {
			t.Errorf("--print makes %s, leaf migrate makes %s", got, text)
		}
	}
	// Then an account suffices that may do nothing but its work.
	least := account(t, other, "secret", "SELECT, INSERT, UPDATE, DELETE")
	leafOK(t, "migrate", "--mysql", least, "--check")
	g := embed(t, "--mysql", least, "--mysql-migrate=false", "--tag", "order")
	if id := takeOne(t, client(t, g.url), "order"); id != 1 {
		t.Errorf("the first ID is %d", id)
	}
	leafOK(t, "tag", "set", "order", "--max-id", "5000", "-s", g.url)
	leafOK(t, "tag", "rm", "order", "--yes", "-s", g.url)
	g.stop()
	// One that may not even read is told so.
	execute(t, admin, "REVOKE SELECT ON "+cfg.DBName+".* FROM '"+cfg.DBName+"'@'%'")
	leaf(t, "migrate", "--mysql", least).want(t, 1, "denied")
}
