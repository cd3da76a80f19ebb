package tests

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
)

// What operators see of a store that went backwards, and of the ledger.

// hasMetric reports whether a generator's metrics have the line.
func hasMetric(t *testing.T, g *generator, line string) bool {
	t.Helper()
	return slices.Contains(strings.Split(fetch(t, "GET", g.http+"/metrics").body, "\n"), line)
}

// With --shared-table a tag is refused until an operator has moved its max_id.
func TestSharedTable(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	g := withHTTP(t, "--mysql", dsn, "--shared-table", "--tag", "order:100", "--max-wait", "2s")
	db := openDB(t, dsn)
	leafOK(t, "get", "order", "-n", "500", "-s", g.url)
	execute(t, db, "UPDATE leaf_alloc SET max_id = max_id + 1000") // the other program
	if first := leafOK(t, "get", "order", "-n", "700", "--ranges", "-s", g.url); !strings.HasPrefix(first, "1501-") {
		t.Errorf("after the other program reserved 501 to 1500: %s", first)
	}
	seen := bus.ID(maxIDOf(t, db, "order"))
	execute(t, db, "UPDATE leaf_alloc SET max_id = 1")
	leaf(t, "get", "order", "-n", "1000", "-s", g.url, "--timeout", "2s").want(t, 1, "store_regressed", "--shared-table", "--max-id N` with N at least "+strconv.FormatInt(int64(seen), 10))
	if maxID := maxIDOf(t, db, "order"); maxID != 1 {
		t.Errorf("max_id was moved to %d", maxID)
	}
	js := jetStream(t, connect(t, g.url))
	if e, want := lastEvent[regression](t, js, "leaf.events.alert.segment.regressed.order"), (regression{
		Node: g.node, Tag: "order", Store: "mysql", Action: "refused", Got: 1, Seen: seen, First: 1, Last: seen - 1}); e != want {
		t.Errorf("the alert says %+v, want %+v", e, want)
	}
	if !hasMetric(t, g, `leaf_store_regressions_total{action="refused"} 1`) || !hasMetric(t, g, `leaf_tags{state="regressed"} 1`) {
		t.Error("the metrics do not say that the tag is refused")
	}
	leafOK(t, "tag", "set", "order", "--max-id", "9000", "-s", g.url)
	if id := leafOK(t, "get", "order", "-s", g.url); id != "9000\n" {
		t.Errorf("ID %s after max_id was moved to 9000", id)
	}
}

// After a restore of JetStream one command moves each tag above what was handed out.
func TestTagAdvanceAfterARestore(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order", "--tag", "idle")
	leafOK(t, "get", "order", "-n", "1500", "-s", g.url)
	tags, err := jetStream(t, connect(t, g.url)).KeyValue(t.Context(), bus.BucketTags)
	must(t, err)
	record, err := tags.Get(t.Context(), "order")
	must(t, err)
	old := strings.Replace(string(record.Value()), `"max_id":"1501"`, `"max_id":"7"`, 1)
	if old == string(record.Value()) {
		t.Fatalf("the record is %s", old)
	}
	_, err = tags.PutString(t.Context(), "order", old)
	must(t, err)
	if out := leafOK(t, "tag", "advance", "--all", "-s", g.url); out != "idle 1 unchanged\norder 7 → 1501\n" {
		t.Errorf("it prints %q", out)
	}
	if id := leafOK(t, "get", "order", "-s", g.url); id != "1501\n" {
		t.Errorf("the next ID is %s", id)
	}
	leaf(t, "tag", "advance", "nosuch", "order", "-s", g.url).want(t, 1, "1 of 2 tags were not advanced:\nnosuch: unknown tag")
}

// leaf nodes, /readyz and the metrics show a ledger that must not be used.
func TestUnfitLedgerIsShown(t *testing.T) {
	t.Parallel()
	g := withHTTP(t, "--mysql", mariadb.NewDatabase(t), "--tag", "order:100000", "--node", "n")
	leafOK(t, "get", "order", "-s", g.url)
	js := jetStream(t, connect(t, g.url))
	limit := func(age time.Duration) {
		stream, err := js.Stream(t.Context(), "KV_"+bus.BucketLedger)
		must(t, err)
		config := stream.CachedInfo().Config
		config.MaxAge = age
		_, err = js.UpdateStream(t.Context(), config)
		must(t, err)
	}
	limit(time.Hour)
	testkit.Eventually(t, "leaf nodes to show it", func() bool {
		r := leaf(t, "nodes", "-s", g.url)
		return strings.Contains(r.stdout, "missing: ledger") && strings.Contains(r.stderr, "n: ledger: ") && strings.Contains(r.stderr, "age limit")
	})
	if p := fetch(t, "GET", g.http+"/readyz"); p.status != 503 || !strings.Contains(p.body, `"missing":["ledger"]`) || !strings.Contains(p.body, "age limit") {
		t.Errorf("/readyz: %d %s", p.status, p.body)
	}
	if p := fetch(t, "GET", g.http+"/readyz/segment"); p.status != 200 {
		t.Errorf("/readyz/segment: %d %s, although IDs are in memory", p.status, p.body)
	}
	if !hasMetric(t, g, `leaf_missing{what="ledger"} 1`) || !hasMetric(t, g, `leaf_missing{what="store"} 0`) {
		t.Error("the metrics do not show it")
	}
	limit(0)
	testkit.Eventually(t, "the generator to be ready", func() bool { return fetch(t, "GET", g.http+"/readyz").status == 200 })
}
