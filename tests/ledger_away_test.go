package tests

import (
	"net/http"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// The ledger takes no writes, as on a full disk, and the database is well. What is in memory is handed out, the
// database is left alone, and who looks sees why. Then service goes on by itself.
func TestLedgerTakesNoWrites(t *testing.T) {
	t.Parallel()
	l := newLedgered(t)
	g := l.join([]string{"one"}, "--tag", "order:1000", "--tag", "large:1000", "--max-step", "1000",
		"--max-wait", "1s", "--http", "127.0.0.1:0")["one"]
	c := bus.NewClient(l.nc)
	l.take("large", 1)
	load := startLoad(t, hasty("order", bus.StoreUnavailable, bus.TimedOut), l.url)
	load.more(300)

	breakBucket(t, l.js, bus.BucketLedger, true)
	before := maxIDOf(t, l.db, "order")
	large := maxIDOf(t, l.db, "large")
	message := l.refusedWith("order", 503, bus.StoreUnavailable)
	if !strings.Contains(message, bus.BucketLedger) {
		t.Errorf("the message does not name the ledger: %s", message)
	}
	t.Log(message)
	testkit.Eventually(t, "the state to name the ledger", func() bool { return lacks(stateOf(t, c), "ledger", bus.BucketLedger) })
	alert := lastEvent[bus.LedgerUnavailableEvent](t, l.js, "leaf.events.alert.ledger.unavailable.one")
	if !strings.Contains(alert.Error, bus.BucketLedger) || alert.SinceMS == 0 {
		t.Errorf("alert %+v", alert)
	}
	if p := fetch(t, http.MethodGet, g.http+"/readyz"); p.status != 503 || !strings.Contains(p.body, "ledger") {
		t.Errorf("/readyz: %+v", p)
	}
	list := leaf(t, "nodes", "-s", l.url)
	if list.status != 0 || !strings.Contains(list.stdout, "ledger") || !strings.Contains(list.stderr, "one: ledger: ") {
		t.Errorf("leaf nodes: %+v", list)
	}
	for range 50 {
		l.take("large", 1) // from memory
	}
	failures := stateOf(t, c).Counts.StoreErrors
	testkit.Eventually(t, "more attempts", func() bool { return stateOf(t, c).Counts.StoreErrors >= failures+4 })
	load.report()
	after := maxIDOf(t, l.db, "order")
	t.Logf("max_id of order was moved by %d", after-before)
	if after > before+2*1000 || maxIDOf(t, l.db, "large") != large {
		t.Errorf("max_id of order was moved by %d while nothing could be claimed", after-before)
	}

	breakBucket(t, l.js, bus.BucketLedger, false)
	testkit.Eventually(t, "an ID", func() bool { return len(ask(t, l.nc, "leaf.segment.order", "").Header) == 0 })
	l.take("order", before)
	testkit.Eventually(t, "the generator to be ready", func() bool { return stateOf(t, c).Ready })
	lastEvent[episode](t, l.js, "leaf.events.info.ledger.recovered.one")
	for _, subject := range []string{"leaf.events.alert.ledger.unavailable.one", "leaf.events.info.ledger.recovered.one"} {
		if found := countEvents(t, l.nc, subject)["one"]; found != 1 {
			t.Errorf("%d events on %s, want 1", found, subject)
		}
	}
	g.stop()
}
