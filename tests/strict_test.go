package tests

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
	"github.com/leafbus/leafbus/tests/proxy"
)

// tagStores are the arguments that say where trend tags live.
var tagStores = map[string]func(*testing.T) []string{
	"jetstream": func(*testing.T) []string { return nil },
	"mysql":     func(t *testing.T) []string { return []string{"--mysql", mariadb.NewDatabase(t)} },
}

// strictGenerators starts a generator for each of the NATS URLs, each at an HTTP address that it keeps.
func strictGenerators(t *testing.T, urls []string, args ...string) (generators []*generator, again func(i int)) {
	t.Helper()
	all := make([][]string, len(urls))
	for i, url := range urls {
		all[i] = append([]string{"-s", url, "--http", testkit.FreeAddress(t), "--node", fmt.Sprint("n", i)}, args...)
		generators = append(generators, serve(t, t.TempDir(), all[i]...))
	}
	return generators, func(i int) {
		t.Helper()
		generators[i] = serve(t, generators[i].dir, all[i]...)
	}
}

// proxyTo is a proxy to a NATS server. It returns the URL that leads through it.
func proxyTo(t *testing.T, url string) (p *proxy.Proxy, there string) {
	t.Helper()
	p, err := proxy.Start(strings.TrimPrefix(url, "nats://"))
	must(t, err)
	t.Cleanup(p.Close)
	return p, "nats://" + p.Addr()
}

func addressesOf(generators []*generator) (https []string) {
	for _, g := range generators {
		https = append(https, g.http)
	}
	return https
}

func addStrict(t *testing.T, url, tag string) {
	t.Helper()
	leafOK(t, "tag", "add", tag, "--order", "strict", "-s", url)
}

// orderOf is the order in a tag's record.
func orderOf(t *testing.T, nc *nats.Conn, tag string) string {
	t.Helper()
	msg := ask(t, nc, bus.SubjectTagsGet, fmt.Sprintf(`{"tag":%q}`, tag))
	granted(t, msg)
	var record struct{ Order string }
	must(t, json.Unmarshal(msg.Data, &record))
	return record.Order
}

// Callers of all kinds take IDs of a strict tag from three generators, beside a trend tag. One generator is killed and comes back,
// one is stopped, and an operator moves max_id. One is far from NATS: requests over HTTP reach it before the answers to its
// claims do. A request that is sent after the answer to another one has arrived gets higher IDs, also after all was started again.
func TestStrictOrder(t *testing.T) {
	t.Parallel()
	for name, args := range tagStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newNATS(t)
			url := server.ClientURL()
			way, far := proxyTo(t, url)
			way.Delay(20 * time.Millisecond)
			generators, again := strictGenerators(t, []string{url, url, far}, append(args(t), "--tag", "order:1000")...)
			addStrict(t, url, "invoice")
			trend := startLoad(t, loadConfig{tag: "order", callers: 1, maxBatch: 100, patience: time.Second, mayGiveUp: true}, url)
			https := append(addressesOf(generators), slices.Repeat([]string{generators[2].http}, 4)...)
			l := startStrict(t, "invoice", 10, []string{url, url, url}, https)
			l.more(500)
			generators[0].kill()
			l.more(500)
			l.raiseMaxID(url)
			again(0)
			generators[1].stop()
			l.more(500)
			l.raiseMaxID(url)
			l.all()
			l.stop()
			trend.stop()

			again(1)
			for _, g := range generators {
				g.stop()
			}
			server.Close()
			server.start()
			for i := range generators {
				again(i)
			}
			nc := connect(t, url)
			if order := orderOf(t, nc, "invoice"); order != "strict" {
				t.Errorf("after everything was started again the order is %q", order)
			}
			for range 20 {
				if id := takeOne(t, bus.NewClient(nc), "invoice"); id <= l.highest.Load() {
					t.Errorf("after everything was started again ID %d came, and %d was handed out before", id, l.highest.Load())
				} else {
					l.highest.Store(id)
				}
			}
		})
	}
}

// A strict tag says so in the header of each answer, over NATS and HTTP. A trend tag has no such header.
func TestStrictHeader(t *testing.T) {
	t.Parallel()
	g := withHTTP(t, "--tag", "order")
	addStrict(t, g.url, "invoice")
	nc := connect(t, g.url)
	for _, body := range []string{"", "3", `{"count":3}`} {
		msg := ask(t, nc, "leaf.segment.invoice", body)
		if len(msg.Header) != 1 || msg.Header.Get("Leaf-Order") != "strict" || msg.Header.Get("Nats-Service-Error-Code") != "" {
			t.Errorf("%q: answered %q with headers %v", body, msg.Data, msg.Header)
		}
		granted(t, ask(t, nc, "leaf.segment.order", body))
	}
	for path, want := range map[string]string{
		"/api/segment/get/invoice": "strict", "/api/segment/get/invoice?count=3": "strict", "/api/segment/get/order": "",
	} {
		if p := fetch(t, http.MethodGet, g.http+path); p.status != 200 || p.header.Get("Leaf-Order") != want {
			t.Errorf("%s: %d %q with headers %v, want the order %q", path, p.status, p.body, p.header, want)
		}
	}
}

// A pool fetches IDs ahead, so they would not be in order: it says so, and hands out none.
func TestPoolOfAStrictTag(t *testing.T) {
	t.Parallel()
	g := embed(t)
	addStrict(t, g.url, "invoice")
	pool, err := client(t, g.url).Pool("invoice")
	must(t, err)
	defer pool.Close()
	for range 3 {
		id, err := pool.Next(t.Context())
		if !errors.Is(err, bus.BadRequest) || !strings.Contains(err.Error(), "strict") {
			t.Errorf("a pool of a strict tag handed out %d, %v", id, err)
		}
	}
}

// The order of a tag is chosen once: a name that had one order never gets the other, also after a deletion.
func TestOrderIsForLife(t *testing.T) {
	t.Parallel()
	for name, args := range tagStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newNATS(t)
			url := server.ClientURL()
			generators, _ := strictGenerators(t, []string{url, url}, args(t)...)
			nc := connect(t, url)
			other := map[string]string{"strict": "trend", "trend": "strict"}
			for order, different := range other {
				tag := "of-" + order
				leafOK(t, "tag", "add", tag, "--order", order, "-s", url)
				highest := takeOne(t, bus.NewClient(nc), tag)
				for _, state := range []string{"live", "deleted"} {
					if state == "live" {
						leaf(t, "tag", "add", tag, "--order", order, "-s", url).want(t, 1, "409 exists")
					} else {
						leafOK(t, "tag", "rm", tag, "--yes", "-s", url)
					}
					leaf(t, "tag", "add", tag, "--order", different, "-s", url).want(t, 1, "409 conflict")
					for range generators { // whichever generator is asked
						refused(t, ask(t, nc, bus.SubjectTagsCreate, fmt.Sprintf(`{"tag":%q,"order":%q}`, tag, different)), 409, bus.Conflict)
					}
				}
				leafOK(t, "tag", "add", tag, "--order", order, "-s", url)
				if got := cmp.Or(orderOf(t, nc, tag), "trend"); got != order { // a record says it of strict tags alone
					t.Errorf("the order of %s is %q", tag, got)
				}
				if id := takeOne(t, bus.NewClient(nc), tag); id <= highest {
					t.Errorf("%s was created again and handed out %d after %d", tag, id, highest)
				}
			}
			refused(t, ask(t, nc, bus.SubjectTagsCreate, `{"tag":"new","order":"strict","step":10}`), 400, bus.BadRequest)
			refused(t, ask(t, nc, bus.SubjectTagsUpdate, `{"tag":"of-strict","step":10}`), 400, bus.BadRequest)
			refused(t, ask(t, nc, bus.SubjectTagsCreate, `{"tag":"new","order":"other"}`), 400, bus.BadRequest)
		})
	}
}

// SQL inserts a row with the name of a strict tag. It is not served, and an alert says so until the row is gone.
func TestRowWithTheNameOfAStrictTag(t *testing.T) {
	t.Parallel()
	l := newLedgered(t)
	l.join([]string{"one", "two"}, "--tag-refresh", "100ms")
	addStrict(t, l.url, "invoice")
	highest := l.take("invoice", 1)
	execute(t, l.db, insertTag("invoice", 5_000_000))
	alert := lastEvent[bus.ShadowedEvent](t, l.js, "leaf.events.alert.segment.shadowed.invoice")
	if alert.Tag != "invoice" || alert.Node != "one" && alert.Node != "two" {
		t.Errorf("alert %+v", alert)
	}
	for range 20 {
		msg := ask(t, l.nc, "leaf.segment.invoice", "")
		ranges, err := bus.ParseReply(msg.Data)
		must(t, err)
		if id := ranges[0].First; id <= highest || id > 1000 || msg.Header.Get("Leaf-Order") != "strict" {
			t.Errorf("ID %d with headers %v came after %d: the row has 5000000", id, msg.Header, highest)
		}
		highest = ranges[0].First
	}
	if maxID := maxIDOf(t, l.db, "invoice"); maxID != 5_000_000 {
		t.Errorf("the row's max_id is %d", maxID)
	}
	execute(t, l.db, "DELETE FROM leaf_alloc WHERE biz_tag = 'invoice'")
	if over := lastEvent[episode](t, l.js, "leaf.events.info.segment.recovered.invoice"); over.Episode != "shadowed" {
		t.Errorf("recovered from %+v", over)
	}
	l.take("invoice", highest+1)
}

// A strict tag has no IDs in memory: while JetStream cannot be written, requests wait for as long as they may and are then refused.
func TestStrictTagWhileJetStreamIsAway(t *testing.T) {
	t.Parallel()
	n := newChangingNATS(t)
	url := n.begin(true)
	g := serve(t, t.TempDir(), "-s", url, "--max-wait", "2s")
	addStrict(t, url, "invoice")
	nc := connect(t, url)
	highest := takeOne(t, bus.NewClient(nc), "invoice")
	away := map[string]func(on bool){
		"JetStream takes no writes": func(on bool) { breakStore(t, jetStream(t, nc), on) },
		"JetStream is off":          func(on bool) { n.begin(!on) },
	}
	for name, set := range away {
		set(true)
		testkit.Eventually(t, "a refusal: "+name, func() bool {
			call := time.Now()
			msg, err := nc.Request("leaf.segment.invoice", nil, 6*time.Second)
			if err != nil { // the generator is not back yet, or the request went to the server that ended
				return false
			}
			if wait := time.Since(call); wait > 5*time.Second {
				t.Errorf("%s: the answer came after %v", name, wait)
			}
			refused(t, msg, 503, bus.StoreUnavailable)
			return true
		})
		set(false)
		id := takeOne(t, bus.NewClient(nc), "invoice")
		if id <= highest {
			t.Errorf("%s: ID %d came after %d", name, id, highest)
		}
		highest = id
	}
	g.stop()
}

// Strict tags need JetStream alone: the database goes away, and they are served as before.
func TestStrictTagWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	way, dsn := newProxy(t, mariadb.NewDatabase(t))
	server := newNATS(t)
	url := server.ClientURL()
	generators, again := strictGenerators(t, []string{url, url}, "--mysql", dsn)
	addStrict(t, url, "invoice")
	c := client(t, url)
	highest := takeOne(t, c, "invoice")
	take := func() {
		t.Helper()
		for range 20 {
			id := takeOne(t, c, "invoice")
			if id <= highest {
				t.Errorf("ID %d came after %d", id, highest)
			}
			highest = id
		}
	}
	way.Refuse(true)
	take()
	leafOK(t, "tag", "set", "invoice", "--max-id", fmt.Sprint(highest+1000), "-s", url)
	highest += 999
	take()
	way.Refuse(false)
	generators[0].kill()
	again(0)
	take()
}
