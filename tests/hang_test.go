package tests

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
	"github.com/leafbus/leafbus/tests/proxy"
)

// A connection to NATS that hangs is connected for minutes. Over HTTP the generator is asked all the
// while: it says that it lacks the bus, and reserves nothing, for nobody would hear of it.
func TestNATSHangs(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	server := newNATS(t)
	link, err := proxy.Start(strings.TrimPrefix(server.ClientURL(), "nats://"))
	must(t, err)
	t.Cleanup(link.Close)
	g := serve(t, t.TempDir(), "-s", "nats://"+link.Addr(), "--mysql", dsn, "--tag", "order:100", "--max-step", "100", "--max-wait", "2s", "--http", "127.0.0.1:0")
	order := g.http + "/api/segment/get/order"
	if p := fetch(t, "GET", order); p.status != 200 {
		t.Fatal(p)
	}
	missing := func() []string {
		var r bus.Readiness
		must(t, json.Unmarshal([]byte(fetch(t, "GET", g.http+"/readyz").body), &r))
		return r.Missing
	}
	link.Hang(true)
	testkit.Eventually(t, "the bus to be missed", func() bool { return slices.Contains(missing(), "bus") })
	db := openDB(t, dsn)
	before := maxIDOf(t, db, "order")
	if p := fetch(t, "GET", order); p.status != 200 {
		t.Errorf("from memory: %+v", p)
	}
	if p := fetch(t, "GET", order+"?count=1000"); p.status != 500 || p.header.Get("Leaf-Error-Reason") == "" {
		t.Errorf("of what is not in memory: %+v", p)
	}
	if after := maxIDOf(t, db, "order"); after != before {
		t.Errorf("max_id went from %d to %d, and nobody heard of it", before, after)
	}
	link.Hang(false)
	testkit.Eventually(t, "nothing to be missed", func() bool { return len(missing()) == 0 })
	if p := fetch(t, "GET", order+"?count=1000"); p.status != 200 {
		t.Errorf("afterwards: %+v", p)
	}
}
