//go:build drills

package tests

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
	"github.com/leafbus/leafbus/tests/proxy"
)

// insertTags inserts the thirty tags of a night into a database.
func insertTags(t *testing.T, dsn string, step int) {
	t.Helper()
	db := openDB(t, dsn)
	for i := range nightTags {
		execute(t, db, fmt.Sprintf("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('%s', 1, %d)", nightTag(i), step))
	}
}

// The database is read-only, and then it dies.
func TestDrillNightDatabase(t *testing.T) {
	s := mariadb.New(t)
	dsn, err := s.Database()
	must(t, err)
	w := newWatch(t, newNATS(t).ClientURL(), threeNodes, "--mysql", dsn, "--max-step", "2000", "--max-wait", "300ms")
	w.doctor = []string{"--mysql", dsn}
	insertTags(t, dsn, 1000)
	for i := range nightTags {
		filled(t, w.nc, nightTag(i), 3, "200")
	}
	w.load()
	must(t, s.Kill())
	for i := range nightTags {
		night{nc: w.nc}.fail(t, nightTag(i), 3, i < dryTags)
	}
	at := s.Addr()
	refills := w.wakes("LeafRefillsFail", "instance", w.face["gen_1"]).shows("leaf doctor", "problem", "mysql", at)
	notReady := w.wakes("LeafNotReady", "what", "store", "instance", w.face["gen_3"]).shows("leaf nodes", "gen_3: store: ", at)
	failed := w.wakes("leaf.segment.refill_failed", nightTag(9)).shows("leaf doctor", at).shows("leaf events --alerts --since 1h", nightTag(9), "gen_1", at)
	starved := w.wakes("leaf.segment.starved", nightTag(0)).shows("leaf nodes", "missing: store", at)
	runOut := w.wakes("LeafIDsRunOut", "instance", w.face["gen_2"]).shows("leaf events --alerts --since 1h", nightTag(9), at)
	down := w.wakes("LeafTagDown", "tag", nightTag(0)).shows("leaf get TAG", "store_unavailable", at)
	for i := range nightTags {
		night{nc: w.nc}.fail(t, nightTag(i), 3, true)
	}
	cannot := w.wakes("LeafCannotServe", "kind", "segment").shows("leaf nodes", "gen_1: store: ", at)
	many := w.wakes("LeafManyRequestsRefused").shows("leaf nodes", "gen_1: store: ", at)
	burns := w.wakes("LeafBudgetBurns").shows("leaf nodes", at)
	refused := w.wakes("LeafRequestsRefused", "outcome", "store_unavailable")
	event := w.wakes("LeafAlertEvent", "type", "leaf.segment.starved").shows("leaf events --alerts --since 1h", "segment.starved", nightTag(0))
	w.board(w.face["gen_2"], `"kind":"mysql"`, `"harm":"refused"`, nightTag(0), at)
	must(t, s.Run())
	for _, c := range []*call{refills, failed, starved, runOut, down, cannot, many, burns, refused, notReady, event} {
		c.ends()
	}
}

// An older copy of the database takes its place.
func TestDrillNightRestored(t *testing.T) {
	l := newLedgered(t)
	w := newWatch(t, l.url, threeNodes, "--mysql", l.dsn, "--max-step", "100", "--max-wait", "1s")
	insertTags(t, l.dsn, 100)
	for i := range nightTags {
		filled(t, w.nc, nightTag(i), 3, "20")
	}
	w.load()
	l.forget()
	doctor(t, "-s", l.url, "--mysql", l.dsn).want(t, "ledger", "problem", "max_id")
	advanced := w.wakes("LeafStoreAdvanced").shows("leaf events --alerts --since 1h", "segment.regressed", nightTag(busyTag), "advanced", "mysql")
	event := w.wakes("leaf.segment.regressed", nightTag(busyTag)).says("was a backup restored").shows("leaf audit TAG", nightTag(busyTag))
	w.board(w.face["gen_1"], nightTag(busyTag))
	advanced.ends()
	event.ends()
}

// The same where Java Leaf reserves in the table too.
func TestDrillNightShared(t *testing.T) {
	l := newLedgered(t)
	w := newWatch(t, l.url, threeNodes, "--mysql", l.dsn, "--shared-table", "--max-step", "100", "--max-wait", "300ms")
	insertTags(t, l.dsn, 100)
	for i := range nightTags {
		filled(t, w.nc, nightTag(i), 3, "20")
	}
	tag := nightTag(busyTag)
	seen := maxIDOf(t, l.db, tag)
	l.forget()
	for range 3 {
		refused(t, ask(t, w.nc, "leaf.segment."+tag, "1000"), 503, bus.StoreRegressed)
	}
	doubt := w.wakes("LeafIDsInDoubt").shows("leaf events --alerts --since 1h", "segment.regressed", tag, "refused", fmt.Sprint(seen)).with(tag, "leaf audit TAG", tag)
	regressed := w.wakes("LeafStoreRegressed").shows("leaf events --alerts --since 1h", tag, fmt.Sprint(seen))
	regressed.does("leaf tag set TAG --max-id N", "TAG", tag, "N", fmt.Sprint(seen+1000))
	regressed.ends()
	doubt.ends()
}

// An operator's setting makes the ledger unfit, and later somebody deletes its bucket.
func TestDrillNightLedger(t *testing.T) {
	l := newLedgered(t)
	w := newWatch(t, l.url, threeNodes, "--mysql", l.dsn, "--tag", "order:1000")
	w.doctor = []string{"--mysql", l.dsn}
	filled(t, w.nc, "order", 3, "200")
	age := func(max time.Duration) {
		reconfigure(t, w.js, "KV_"+bus.BucketLedger, func(c *jetstream.StreamConfig) { c.MaxAge = max })
	}
	age(time.Hour)
	rule := w.wakes("LeafLedgerUnavailable", "instance", w.face["gen_1"]).shows("leaf doctor", "problem", "LEAF_LEDGER has an age limit")
	event := w.wakes("leaf.ledger.unavailable", "gen_2").shows("leaf doctor", "LEAF_LEDGER has an age limit").
		shows("leaf events --alerts --since 1h", "gen_2", "age limit")
	w.board(w.face["gen_1"], `"leaf.ledger.unavailable"`, "age limit")
	age(0)
	rule.ends()
	event.ends()

	must(t, w.js.DeleteKeyValue(t.Context(), bus.BucketLedger))
	testkit.Eventually(t, "a refill", func() bool {
		_ = ask(t, w.nc, "leaf.segment.order", "1000")
		return len(countEvents(t, w.nc, "leaf.events.alert.ledger.replaced.>")) > 0
	})
	for node := range countEvents(t, w.nc, "leaf.events.alert.ledger.replaced.>") {
		replaced := w.wakes("leaf.ledger.replaced", node).shows("leaf events --alerts --since 1h", node, "ledger.replaced", "cause")
		replaced.ends()
		replaced.shows("leaf audit", "order")
	}
}

// The event stream is full and takes nothing more, and later it takes no event at all.
func TestDrillNightEvents(t *testing.T) {
	w := newWatch(t, newNATS(t).ClientURL(), threeNodes, "--tag", "order:10", "--max-step", "10")
	refill := func() { // 50 refills a request
		for range 20 {
			granted(t, ask(t, w.nc, "leaf.segment.order", "100"))
		}
	}
	refill()
	reconfigure(t, w.js, bus.EventStream, func(c *jetstream.StreamConfig) {
		c.Discard, c.MaxMsgs, c.MaxMsgsPerSubject = jetstream.DiscardNew, 2, -1
	})
	queued := func(most int) func() bool {
		return func() bool {
			refill()
			for _, s := range states(t, bus.NewClient(w.nc), 3) {
				if s.Counts.EventsQueued <= most {
					return false
				}
			}
			return true
		}
	}
	testkit.Eventually(t, "events to wait", queued(150))
	wait := w.wakes("LeafEventsWait", "instance", w.face["gen_1"]).shows("leaf doctor", "LEAF_EVENTS", "takes no writes when it is full")
	reconfigure(t, w.js, bus.EventStream, func(c *jetstream.StreamConfig) { c.Discard, c.MaxMsgs = jetstream.DiscardOld, -1 })
	wait.ends()

	reconfigure(t, w.js, bus.EventStream, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 10 })
	refill()
	dropped := w.wakes("LeafEventsDropped").shows("leaf doctor", "problem", "LEAF_EVENTS takes no message of more than 10 bytes", "--max-msg-size=-1")
	reconfigure(t, w.js, bus.EventStream, func(c *jetstream.StreamConfig) { c.MaxMsgSize = -1 })
	dropped.ends()
}

// links are the ways of a generator to NATS and to its database.
type links struct{ nats, mysql *proxy.Proxy }

// behind starts a generator whose ways can be cut.
func (w *watch) behind(l *ledgered, node string) links {
	w.t.Helper()
	way, err := proxy.Start(strings.TrimPrefix(l.url, "nats://"))
	must(w.t, err)
	w.t.Cleanup(way.Close)
	db, there := newProxy(w.t, l.dsn)
	serve(w.t, w.t.TempDir(), "-s", "nats://"+way.Addr(), "--node", node, "--mysql", there)
	return links{way, db}
}
