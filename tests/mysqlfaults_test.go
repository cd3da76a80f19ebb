package tests

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
)

// join starts generators that share a NATS and a database.
func join(t *testing.T, url, dsn string, nodes []string, args ...string) map[string]*generator {
	t.Helper()
	found := make(map[string]*generator)
	for _, node := range nodes {
		found[node] = serve(t, t.TempDir(), append([]string{"-s", url, "--mysql", dsn, "--node", node}, args...)...)
	}
	return found
}

// filled asks for IDs until each of the generators has two segments of a tag.
func filled(t *testing.T, nc *nats.Conn, tag string, nodes int, batch string) {
	t.Helper()
	testkit.Eventually(t, "two segments of "+tag+" at each generator", func() bool {
		granted(t, ask(t, nc, "leaf.segment."+tag, batch))
		full := 0
		for _, b := range askBuffers(t, nc, tag, nodes) {
			if len(b.Segments) == 2 {
				full++
			}
		}
		return full == nodes
	})
}

type episode struct{ Node, Tag, Episode string }

type refillFailed struct {
	Node, Tag, Error string
	Left             int64
}

// The database is stopped for a while under load. As long as segments last
// nobody notices but those who look: one alert at each generator, and the state.
func TestDatabaseStopsUnderLoad(t *testing.T) {
	t.Parallel()
	db, dsn := newServer(t)
	server := newNATS(t)
	url := server.ClientURL()
	nodes := []string{"one", "two"}
	join(t, url, dsn, nodes, "--tag", "order:1000000", "--max-step", "1000000")
	nc := connect(t, url)
	js := jetStream(t, nc)
	c := bus.NewClient(nc)
	filled(t, nc, "order", 2, "60000")
	l := startLoad(t, loadConfig{tag: "order", callers: 4, maxBatch: 10}, url)
	l.more(200)

	must(t, db.Stop())
	// Who is asked is chance: the batches are so small that both use up their
	// first segment long before one has used up its second.
	testkit.Eventually(t, "both generators to want more", func() bool {
		failing := 0
		for _, b := range askBuffers(t, nc, "order", 2) {
			if b.State == "failing" {
				failing++
			}
		}
		msg := ask(t, nc, "leaf.segment.order", "10000")
		granted(t, msg)
		ranges, err := bus.ParseReply(msg.Data)
		must(t, err)
		l.record(ranges, 0)
		return failing == 2
	})
	testkit.Eventually(t, "both generators to say that the database is away", func() bool {
		found := states(t, c, 2)
		return lacks(found[0], "store", "MySQL") && lacks(found[1], "store", "MySQL")
	})
	l.more(500)
	for _, s := range states(t, c, 2) {
		if len(s.Counts.Errors) > 0 || len(s.Missing) != 1 || s.Counts.Waiting > 0 {
			t.Errorf("%s refused %v while it had IDs; it lacks %v, %d wait", s.Node, s.Counts.Errors, s.Missing, s.Counts.Waiting)
		}
	}
	alerts := make(map[string]refillFailed)
	for _, e := range eventsOn[refillFailed](t, js, "leaf.events.alert.segment.refill_failed.order", 2) {
		if e.Tag != "order" || !strings.Contains(e.Error, "MySQL") || e.Left < 100_000 || e.Left >= 1_000_000 {
			t.Errorf("alert %+v", e)
		}
		alerts[e.Node] = e
	}
	if len(alerts) != 2 {
		t.Errorf("alerts %v, want one of each generator", alerts)
	}

	must(t, db.Run())
	testkit.Eventually(t, "both generators to be ready", func() bool {
		found := states(t, c, 2)
		return found[0].Ready && found[1].Ready
	})
	for _, e := range eventsOn[episode](t, js, "leaf.events.info.segment.recovered.order", 2) {
		if e.Episode != "refill_failed" {
			t.Errorf("event %+v", e)
		}
	}
	filled(t, nc, "order", 2, "1")
	l.more(500)
	l.stop()
	for _, s := range states(t, c, 2) {
		if len(s.Counts.Errors) > 0 {
			t.Errorf("%s refused %v", s.Node, s.Counts.Errors)
		}
	}
	for _, subject := range []string{"leaf.events.alert.segment.refill_failed.order", "leaf.events.info.segment.recovered.order"} {
		if found := countEvents(t, nc, subject); found["one"] != 1 || found["two"] != 1 {
			t.Errorf("events on %s: %v, want one of each generator", subject, found)
		}
	}
}

// The database is killed again and again while two generators reserve all the
// time. What it confirmed it still knows, and what it did not is a gap.
func TestDatabaseIsKilledDuringRefills(t *testing.T) {
	t.Parallel()
	seed := allocatortest.Seed(t)
	db, dsn := newServer(t)
	table := openDB(t, dsn)
	server := newNATS(t)
	url := server.ClientURL()
	generators := join(t, url, dsn, []string{"one", "two"}, "--tag", "order:20", "--max-step", "50", "--max-wait", "2s")
	l := startLoad(t, loadConfig{tag: "order", callers: 6, maxBatch: 200, patience: patience / 80, mayGiveUp: true}, url, url)
	for round := range 4 {
		l.more(200 + seed.Int64N(1000))
		must(t, db.Kill())
		must(t, db.Run())
		highest := l.highest.Load()
		if maxID := maxIDOf(t, table, "order"); maxID <= highest {
			t.Fatalf("round %d: max_id is %d, and %d was handed out", round, maxID, highest)
		}
	}
	l.more(500)
	l.stop()
	c := client(t, url)
	testkit.Eventually(t, "both generators to be ready", func() bool {
		found := states(t, c, 2)
		return found[0].Ready && found[1].Ready
	})
	for _, g := range generators {
		g.stop()
	}
}

// A database that hangs breaks no connection and answers nothing. Nobody hangs with it.
func TestDatabaseHangs(t *testing.T) {
	t.Parallel()
	const margin = 10 * time.Second // over what may be waited, on a busy machine
	db, dsn := newServer(t)
	server := newNATS(t)
	url := server.ClientURL()
	nodes := []string{"stays", "leaves"}
	generators := join(t, url, dsn, nodes, "--tag", "calm:100000", "--tag", "slow:1",
		"--max-step", "100000", "--max-wait", "2s", "--drain-timeout", "1s")
	nc := connect(t, url)
	filled(t, nc, "calm", 2, "1000")
	slow := startLoad(t, loadConfig{
		tag: "slow", callers: 4, maxBatch: 10, patience: patience / 80, mayGiveUp: true,
	}, url)
	slow.more(200)

	must(t, db.Freeze())
	// Requests that want more than there is wait, each as long as it may.
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	must(t, err)
	want := func(count int) {
		for range count {
			must(t, nc.PublishRequest("leaf.segment.slow", inbox, []byte("100000")))
			must(t, nc.PublishRequest("leaf.segment.fresh", inbox, nil))
		}
	}
	want(50)
	for range 100 {
		granted(t, within(t, nc, margin, "leaf.segment.calm", "5"))
	}
	refusedWaiting := func(count int, reasons ...bus.Reason) {
		t.Helper()
		for i := range 2 * count {
			msg, err := answers.NextMsg(margin)
			if err != nil {
				t.Fatalf("%d of %d requests were answered: %v", i, 2*count, err)
			}
			e := refusal(t, msg)
			ok := false
			for _, reason := range reasons {
				ok = ok || e.Reason == string(reason)
			}
			if !ok {
				t.Errorf("answered %+v, want one of %v", e, reasons)
			}
		}
	}
	refusedWaiting(50, bus.TimedOut, bus.StoreUnavailable)
	c := bus.NewClient(nc)
	testkit.Eventually(t, "both generators to say that the database is away", func() bool {
		found := states(t, c, 2)
		return lacks(found[0], "store", "MySQL") && lacks(found[1], "store", "MySQL")
	})

	// Nor does the end of a generator wait for the database.
	want(20)
	generators["leaves"].signal(syscall.SIGTERM)
	if status := generators["leaves"].wait(time.Second + margin); status != 0 {
		t.Errorf("exit status %d", status)
	}
	refusedWaiting(20, bus.TimedOut, bus.StoreUnavailable, bus.Draining)
	granted(t, within(t, nc, margin, "leaf.segment.calm", "5"))

	must(t, db.Thaw())
	slow.more(200)
	testkit.Eventually(t, "the generator to be ready", func() bool { return stateOf(t, c).Ready })
	again := generators["leaves"].again(t, "--mysql", dsn, "--max-step", "100000")
	slow.more(200)
	slow.stop()
	again.stop()
	generators["stays"].stop()
}

// Another client of the database keeps a row, or the table, to itself for
// longer than a refill may take. The other tags go on, and so does this one afterwards.
func TestLocksOfOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lock, unlock []string
		others       bool // are not locked
	}{
		"row":   {[]string{"BEGIN", "SELECT * FROM leaf_alloc WHERE biz_tag = 'held' FOR UPDATE"}, []string{"ROLLBACK"}, true},
		"table": {[]string{"LOCK TABLES leaf_alloc READ"}, []string{"UNLOCK TABLES"}, false}, // as a dump does
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := mariadb.NewDatabase(t)
			server := newNATS(t)
			url := server.ClientURL()
			join(t, url, dsn, []string{"one", "two"}, "--tag", "held:10", "--tag", "free:10",
				"--max-step", "10", "--max-wait", "2s", "--tag-refresh", "200ms")
			nc := connect(t, url)
			held := startLoad(t, loadConfig{tag: "held", callers: 4, maxBatch: 20, patience: patience / 80, mayGiveUp: true}, url)
			held.more(100)
			var free allocatortest.Checker

			db := openDB(t, dsn)
			conn, err := db.Conn(t.Context())
			must(t, err)
			defer conn.Close()
			do := func(statements []string) {
				for _, s := range statements {
					if _, err := conn.ExecContext(t.Context(), s); err != nil {
						t.Fatalf("%s: %v", s, err)
					}
				}
			}
			do(c.lock)
			if c.others {
				takeMany(t, nc, "free", 300, &free)
			}
			untilUnavailable(t, nc, "held")
			if c.others {
				takeMany(t, nc, "free", 100, &free)
			}
			connections := 0
			must(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE()").Scan(&connections))
			if connections > 2*16+2 {
				t.Errorf("%d connections are open: those that wait for the lock pile up", connections)
			}
			do(c.unlock)
			held.more(100)
			held.stop()
			takeOne(t, bus.NewClient(nc), "free") // it may have to wait until its turn comes again
			takeMany(t, nc, "free", 100, &free)
			_, err = free.Check()
			must(t, err)
			testkit.Eventually(t, "both generators to be ready", func() bool {
				found := states(t, bus.NewClient(nc), 2)
				return found[0].Ready && found[1].Ready
			})
		})
	}
}
