package tests

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

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

// regression is an alert segment.regressed.
type regression struct{ Tag, Got, Seen, Action, First, Last string }

// A database that went backwards heals itself: callers notice nothing, and operators get one alert.
func TestDatabaseThatWentBackwardsHeals(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	g := withHTTP(t, "--mysql", dsn, "--tag", "order:100")
	db := openDB(t, dsn)
	leafOK(t, "get", "order", "-n", "500", "-s", g.url)
	seen := maxIDOf(t, db, "order")
	execute(t, db, "UPDATE leaf_alloc SET max_id = 1")
	if got, want := leafOK(t, "get", "order", "-n", "1000", "--ranges", "-s", g.url), "501-"; !strings.HasPrefix(got, want) {
		t.Errorf("after the database went backwards: %s, want %s…", got, want)
	}
	if maxID := maxIDOf(t, db, "order"); maxID < seen+500 {
		t.Errorf("max_id is %d, and was %d before", maxID, seen)
	}
	js := jetStream(t, connect(t, g.url))
	if e := lastEvent[regression](t, js, "leaf.events.alert.segment.regressed.order"); e != (regression{
		Tag: "order", Got: "1", Seen: strconv.FormatInt(seen, 10), Action: "advanced"}) {
		t.Errorf("the alert says %+v", e)
	}
	if !hasMetric(t, g, `leaf_store_regressions_total{action="advanced"} 1`) || !hasMetric(t, g, `leaf_tags{state="regressed"} 0`) {
		t.Error("the metrics do not say that max_id was moved up")
	}
	at := strconv.FormatInt(maxIDOf(t, db, "order"), 10)
	if out := leafOK(t, "tag", "advance", "--all", "-s", g.url); out != "order "+at+" unchanged\n" {
		t.Errorf("leaf tag advance prints %q", out)
	}
}

// With --shared-table a tag is refused until an operator has moved its max_id.
func TestSharedTable(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	g := withHTTP(t, "--mysql", dsn, "--shared-table", "--tag", "order:100", "--max-wait", "500ms")
	db := openDB(t, dsn)
	leafOK(t, "get", "order", "-n", "500", "-s", g.url)
	execute(t, db, "UPDATE leaf_alloc SET max_id = max_id + 1000") // the other program
	if first := leafOK(t, "get", "order", "-n", "700", "--ranges", "-s", g.url); !strings.HasPrefix(first, "1501-") {
		t.Errorf("after the other program reserved 501 to 1500: %s", first)
	}
	seen := strconv.FormatInt(maxIDOf(t, db, "order"), 10)
	execute(t, db, "UPDATE leaf_alloc SET max_id = 1")
	leaf(t, "get", "order", "-n", "1000", "-s", g.url, "--timeout", "2s").want(t, 1, "store_regressed", "--shared-table", "--max-id N` with N at least "+seen)
	if maxID := maxIDOf(t, db, "order"); maxID != 1 {
		t.Errorf("max_id was moved to %d", maxID)
	}
	last := strconv.FormatInt(parseID(t, seen)-1, 10)
	js := jetStream(t, connect(t, g.url))
	if e := lastEvent[regression](t, js, "leaf.events.alert.segment.regressed.order"); e != (regression{"order", "1", seen, "refused", "1", last}) {
		t.Errorf("the alert says %+v", e)
	}
	if !hasMetric(t, g, `leaf_store_regressions_total{action="refused"} 1`) || !hasMetric(t, g, `leaf_tags{state="regressed"} 1`) {
		t.Error("the metrics do not say that the tag is refused")
	}
	leafOK(t, "tag", "set", "order", "--max-id", "9000", "-s", g.url)
	if id := leafOK(t, "get", "order", "-s", g.url); id != "9000\n" {
		t.Errorf("ID %s after max_id was moved to 9000", id)
	}
}

func parseID(t *testing.T, text string) int64 {
	t.Helper()
	id, err := strconv.ParseInt(text, 10, 64)
	must(t, err)
	return id
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

// leaf nodes, /readyz, the metrics and an alert show a ledger that must not be used.
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
	leafOK(t, "get", "order", "-s", g.url)
	if e := lastEvent[bus.LedgerUnavailableEvent](t, js, "leaf.events.alert.ledger.unavailable.n"); !strings.Contains(e.Error, "age limit") {
		t.Errorf("the alert says %+v", e)
	}
	limit(0)
	if e := lastEvent[bus.RecoveredEvent](t, js, "leaf.events.info.ledger.recovered.n"); e.Episode != "unavailable" {
		t.Errorf("its end says %+v", e)
	}
	testkit.Eventually(t, "the generator to be ready", func() bool { return fetch(t, "GET", g.http+"/readyz").status == 200 })
}

// A ledger that is deleted is filled again, and callers notice nothing.
func TestDeletedLedgerIsFilledAgain(t *testing.T) {
	t.Parallel()
	g := withHTTP(t, "--mysql", mariadb.NewDatabase(t), "--tag", "order:100", "--tag", "idle", "--node", "n")
	leafOK(t, "get", "order", "-n", "500", "-s", g.url)
	js := jetStream(t, connect(t, g.url))
	must(t, js.DeleteStream(t.Context(), "KV_"+bus.BucketLedger))
	if ids := leafOK(t, "get", "order", "-n", "3000", "--ranges", "-s", g.url); ids != "501-3500\n" {
		t.Errorf("it goes on with %s", ids)
	}
	lastEvent[bus.LedgerReplacedEvent](t, js, "leaf.events.alert.ledger.replaced.n")
	if e := lastEvent[bus.RecoveredEvent](t, js, "leaf.events.info.ledger.recovered.n"); e.Episode != "replaced" {
		t.Errorf("its end says %+v", e)
	}
	ledger, err := js.KeyValue(t.Context(), bus.BucketLedger)
	must(t, err)
	for tag, want := range map[string]string{"order": `{"end":"3501"}`, "idle": `{"end":"1"}`} {
		var record jetstream.KeyValueEntry
		record, err = ledger.Get(t.Context(), "tag."+tag)
		must(t, err)
		if string(record.Value()) != want {
			t.Errorf("the record of %s is %s, want %s", tag, record.Value(), want)
		}
	}
}
