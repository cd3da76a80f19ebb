package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
	"github.com/leafbus/leafbus/tests/proxy"
)

// Of NATS, database and registry each is taken away: /readyz says which, and the bus
// says the same as long as it is there.
func TestHealth(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	db, err := proxy.Start(parseDSN(t, dsn).Addr)
	must(t, err)
	t.Cleanup(db.Close)
	server := newNATS(t)
	g := serve(t, t.TempDir(), "-s", server.ClientURL(), "--mysql", through(t, dsn, db.Addr()), "--tag", "order:100000", "--http", "127.0.0.1:0", "--tag-refresh", "1s")
	nc := connect(t, server.ClientURL())

	ready := func() (int, bus.Readiness) {
		t.Helper()
		p := fetch(t, "GET", g.http+"/readyz")
		var r bus.Readiness
		must(t, json.Unmarshal([]byte(p.body), &r))
		return p.status, r
	}
	want := func(status, segment, snowflake int, missing string) {
		t.Helper()
		testkit.Eventually(t, fmt.Sprintf("status %d, missing %q", status, missing), func() bool {
			is, r := ready()
			return is == status && r.Ready == (status == 200) && strings.Join(r.Missing, " ") == missing && len(r.Reasons) == len(r.Missing)
		})
		for path, status := range map[string]int{"/readyz/segment": segment, "/readyz/snowflake": snowflake} {
			if p := fetch(t, "GET", g.http+path); p.status != status || parse[bus.Readiness](t, []byte(p.body)).Ready != (status == 200) {
				t.Errorf("%s: %d, want %d: %s", path, p.status, status, p.body)
			}
		}
		if p := fetch(t, "GET", g.http+"/healthz"); p.status != 200 || p.body != "ok" {
			t.Errorf("the process is alive, and /healthz says %+v", p)
		}
	}
	overBus := func() bus.Readiness { return states(t, bus.NewClient(nc), 1)[0].Readiness }

	want(200, 200, 200, "")
	if r := overBus(); !r.Ready || !r.Segment || !r.Snowflake {
		t.Errorf("over the bus %+v", r)
	}
	granted(t, ask(t, nc, "leaf.segment.order", "")) // so that there is something in memory

	db.Refuse(true)
	db.Cut()
	want(503, 200, 200, "store") // IDs in memory outlast it
	if r := overBus(); r.Ready || !r.Segment || r.Reasons["store"] == "" {
		t.Errorf("over the bus %+v", r)
	}
	if p := fetch(t, "GET", g.http+"/api/segment/get/order"); p.status != 200 {
		t.Errorf("from memory: %+v", p)
	}
	// That the store cannot be asked does not mean that it has no such tag.
	if p := fetch(t, "GET", g.http+"/dashboard/tags"); !strings.Contains(p.body, `"tag":"order","stored":false,"unknown":true`) || strings.Contains(p.body, `"problem":""}`) {
		t.Errorf("the tags are %+v", p)
	}
	db.Refuse(false)
	want(200, 200, 200, "")

	// Cut off, its worker may have become another's: no snowflakes until it has looked.
	server.Close()
	want(503, 200, 503, "bus worker")
	testkit.Eventually(t, "the page to say that no events come", func() bool {
		return strings.Contains(fetch(t, "GET", g.http+"/dashboard/feed").body, `"problem":"New events do not arrive: `)
	})
	if p := fetch(t, "GET", g.http+"/api/segment/get/order"); p.status != 200 {
		t.Errorf("from memory: %+v", p)
	}
	server.start()
	want(200, 200, 200, "")
}

// However many tags there are and are asked for, known or not, metrics do not grow with them.
func TestMetricsOfManyTags(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	g := withHTTP(t, "--mysql", dsn)
	execute(t, openDB(t, dsn), "INSERT INTO leaf_alloc (biz_tag, max_id, step) SELECT CONCAT('tag.', seq), 1, 1000 FROM seq_1_to_20000")
	nc := connect(t, g.url)
	const used = 500
	for i := range used {
		granted(t, ask(t, nc, fmt.Sprint("leaf.segment.tag.", i+1), ""))
		if i%4 == 0 {
			refused(t, ask(t, nc, fmt.Sprint("leaf.segment.unknown.", i), ""), 404, bus.UnknownTag)
			if p := fetch(t, "GET", g.http+fmt.Sprint("/api/segment/get/unknown.", i)); p.status != http.StatusInternalServerError {
				t.Fatal(p)
			}
		}
	}
	series, tags := 0, make(map[string]bool)
	metrics := fetch(t, "GET", g.http+"/metrics").body
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "leaf_") {
			series++
		}
		if _, rest, ok := strings.Cut(line, `tag="`); ok {
			name, _, _ := strings.Cut(rest, `"`)
			tags[name] = true
		}
	}
	if series > 450 || len(tags) != 20 || !strings.Contains(metrics, fmt.Sprintf("leaf_tags{state=\"ok\"} %d\n", used)) {
		t.Errorf("%d series, %d tags, of %d that are used", series, len(tags), used)
	}
}

// A rare tag that is wholly down is in the metrics, beside a busy one that is well. It is gone with its next ID.
func TestMetricsOfATagThatIsDown(t *testing.T) {
	t.Parallel()
	g := withHTTP(t, "--tag", "busy:100000", "--tag", "rare", "--max-wait", "2s")
	nc := connect(t, g.url)
	granted(t, ask(t, nc, "leaf.segment.busy", "")) // in memory
	const seconds = `leaf_tag_refused_seconds{tag="rare"} `
	metrics := func() string { return fetch(t, "GET", g.http+"/metrics").body }
	js := jetStream(t, nc)
	breakStore(t, js, true)
	refused(t, ask(t, nc, "leaf.segment.rare", "no number"), 400, bus.BadRequest)
	asked := 0
	testkit.Eventually(t, "the tag that is down", func() bool {
		refused(t, ask(t, nc, "leaf.segment.rare", "100000"), 503, bus.StoreUnavailable)
		asked++
		granted(t, ask(t, nc, "leaf.segment.busy", ""))
		m := metrics()
		return strings.Contains(m, fmt.Sprintf("leaf_tag_refused_requests{tag=\"rare\"} %d\n", asked)) &&
			strings.Contains(m, seconds) && !strings.Contains(m, seconds+"0\n") // from the first refusal to the last
	})
	if m := metrics(); strings.Contains(m, `leaf_tag_refused_seconds{tag="busy"}`) {
		t.Errorf("only rare is down: %s", m)
	}
	breakStore(t, js, false)
	testkit.Eventually(t, "IDs", func() bool { return len(ask(t, nc, "leaf.segment.rare", "").Header) == 0 })
	testkit.Eventually(t, "the tag to be gone", func() bool { return !strings.Contains(metrics(), "leaf_tag_refused") })
}
