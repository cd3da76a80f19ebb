//go:build drills

package tests

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// threeOf is an installation of three generators whose embedded servers form a cluster, with tags in MySQL.
type threeOf struct {
	*ledgered
	nodes [3]*generator
	args  [3][]string
}

// newThreeOf starts three generators, whose tags are in a database of their own.
func newThreeOf(t *testing.T, l *ledgered, args ...string) *threeOf {
	t.Helper()
	c := &threeOf{ledgered: l}
	var urls, routes []string
	for range c.nodes {
		urls, routes = append(urls, freeAddress(t)), append(routes, freeAddress(t))
	}
	var processes []*process
	for i := range c.nodes {
		dir := t.TempDir()
		conf := filepath.Join(dir, "nats.conf")
		writeFile(t, conf, fmt.Sprintf("server_name: s%d\nlisten: %q\ncluster { name: leaf, listen: %q, routes: [%s] }\n",
			i, strings.TrimPrefix(urls[i], "nats://"), strings.TrimPrefix(routes[i], "nats://"), strings.Join(routes, ", ")))
		c.args[i] = append([]string{"serve", "--http", "127.0.0.1:0", "--nats-config", conf, "--mysql", l.dsn, "--node", fmt.Sprint("n", i)}, args...)
		processes = append(processes, start(t, command(t, dir, nil, c.args[i])))
	}
	for i, p := range processes {
		c.nodes[i] = ready(t, filepath.Dir(c.args[i][4]), p)
	}
	c.url = urls[0]
	c.nc = connect(t, c.url)
	c.js = jetStream(t, c.nc)
	return c
}

// resume starts the generators that were killed, or lets frozen ones go on.
func (c *threeOf) resume(i int, killed bool) {
	c.t.Helper()
	if !killed {
		c.nodes[i].signal(syscall.SIGCONT)
		return
	}
	dir := c.nodes[i].dir
	c.nodes[i] = ready(c.t, dir, start(c.t, command(c.t, dir, nil, c.args[i])))
}

// ask asks until an answer comes. NATS sends some of the requests to generators that are frozen.
func (c *threeOf) ask(tag, body string) (msg *nats.Msg) {
	c.t.Helper()
	testkit.Eventually(c.t, "an answer", func() bool {
		var err error
		msg, err = c.nc.Request("leaf.segment."+tag, []byte(body), patience/100)
		return err == nil
	})
	return msg
}

// allReady waits until all generators have what they need.
func (c *threeOf) allReady(client *bus.Client) {
	c.t.Helper()
	testkit.Eventually(c.t, "all generators to be ready", func() bool {
		ready := 0
		for _, s := range askStates(c.t, client) {
			if s.Ready {
				ready++
			}
		}
		return ready == len(c.nodes)
	})
}

// JetStream loses its quorum, and the database is well. What is in memory is handed out, nothing is reserved, and
// who looks sees why. When the servers are back, service goes on by itself.
func TestDrillLedgerWithoutQuorum(t *testing.T) {
	for name, killed := range map[string]bool{"killed": true, "frozen": false} {
		t.Run(name, func(t *testing.T) {
			c := newThreeOf(t, newLedgered(t), "--tag", "order:1000", "--tag", "large:1000", "--max-step", "1000", "--max-wait", "1s")
			client := bus.NewClient(c.nc)
			c.allReady(client)
			// The first generator has IDs of both tags.
			held := func() bool {
				for _, tag := range []string{"order", "large"} {
					granted(t, ask(t, c.nc, "leaf.segment."+tag, ""))
					if askBuffers(t, c.nc, tag, 3)["n0"].Left == 0 {
						return false
					}
				}
				return true
			}
			testkit.Eventually(t, "IDs in the first generator's memory", held)
			load := startLoad(t, hasty("order", bus.StoreUnavailable, bus.TimedOut), c.url)
			load.more(100)
			before := map[string]int64{}

			for _, n := range c.nodes[1:] {
				if killed {
					n.kill()
				} else {
					n.freeze()
				}
			}
			for _, tag := range []string{"order", "large"} {
				before[tag] = maxIDOf(t, c.db, tag)
			}
			testkit.Eventually(t, "the generator to say that the ledger is away", func() bool {
				for _, s := range askStates(t, client) {
					if s.Node == "n0" && lacks(s, "ledger", "") {
						t.Log(s.Reasons["ledger"])
						return true
					}
				}
				return false
			})
			var refusal wireError
			testkit.Eventually(t, "memory to be empty", func() bool {
				msg := c.ask("order", "1000")
				if len(msg.Header) == 0 {
					return false
				}
				refusal = parse[wireError](t, msg.Data)
				return refusal.Reason != string(bus.TimedOut)
			})
			if refusal.Code != 503 || refusal.Reason != string(bus.StoreUnavailable) || !strings.Contains(refusal.Message, bus.BucketLedger) {
				t.Errorf("refused with %+v", refusal)
			}
			t.Log(refusal.Message)
			for range 10 { // what is in memory
				granted(t, c.ask("large", ""))
			}
			if p := fetch(t, http.MethodGet, c.nodes[0].http+"/readyz"); p.status != 503 || !strings.Contains(p.body, "ledger") {
				t.Errorf("/readyz: %+v", p)
			}
			list := leaf(t, "nodes", "-s", c.url)
			if list.status != 0 || !strings.Contains(list.stdout, "ledger") || !strings.Contains(list.stderr, "n0: ledger: ") {
				t.Errorf("leaf nodes: %+v", list)
			}
			for range 10 {
				refused(t, c.ask("order", "1000"), 503, bus.StoreUnavailable)
			}
			after := map[string]int64{"order": maxIDOf(t, c.db, "order"), "large": maxIDOf(t, c.db, "large")}
			t.Logf("max_id before and after: %v, %v", before, after)
			for tag, most := range map[string]int64{"order": 2 * 1000, "large": 2 * 1000} {
				if moved := after[tag] - before[tag]; moved > most {
					t.Errorf("max_id of %s was moved by %d while nothing could be claimed", tag, moved)
				}
			}

			for i := range 2 {
				c.resume(i+1, killed)
			}
			highest := load.highest.Load()
			testkit.Eventually(t, "IDs that were reserved since", func() bool { load.checkIDs(); return load.highest.Load() > max(highest, after["order"])+5000 })
			c.allReady(client)
			load.report()
			for _, subject := range []string{"leaf.events.alert.ledger.unavailable.n0", "leaf.events.info.ledger.recovered.n0"} {
				lastEvent[map[string]any](t, c.js, subject)
				if found := countEvents(t, c.nc, subject)["n0"]; found != 1 && killed {
					t.Errorf("%d events on %s, want 1", found, subject)
				} else { // a leader without its frozen followers answers reads for a while, so that the outage seems over
					t.Logf("%d events on %s", found, subject)
				}
			}
		})
	}
}
