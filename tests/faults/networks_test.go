package faults

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// networks are faults between generators, NATS and operators.
var networks = []scenario{
	{
		fault: "the NATS server restarts", in: []setup{kv, inMySQL}, fails: once,
		strike: func(in *installation) {
			for range 2 {
				in.nats.Close()
				in.nats.start()
				in.callAgain()
			}
			in.ready(3)
		},
	},
	{
		// It stays connected for a while. Nobody would hear of what the generator reserves.
		fault: "the connection to NATS hangs", in: []setup{mysqlLinked}, tags: none, flags: []string{"--max-wait", "1s"},
		strike: func(in *installation) {
			in.take(order)
			in.paths[0].Hang(true)
			testkit.Eventually(in.T, "the generator lacks the bus", func() bool {
				_, body := in.get(0, "/readyz")
				return strings.Contains(body, `"bus"`)
			})
			before := in.maxID(order)
			if status, body := in.get(0, "/api/segment/get/order"); status != 200 {
				in.Errorf("from memory: %d %s", status, body)
			}
			if status, body := in.get(0, "/api/segment/get/order?count=5000"); status != 500 {
				in.Errorf("of what is not in memory: %d %s", status, body)
			}
			if after := in.maxID(order); after != before {
				in.Errorf("max_id went from %d to %d, and nobody heard of it", before, after)
			}
			in.paths[0].Hang(false)
			in.ready(1)
			in.take(order)
		},
	},
	{
		fault: "a NATS server hangs, and another passes nothing on", in: []setup{cluster}, fails: callers.AnyFailure,
		strike: func(in *installation) {
			link := kit.NewLink(in.T, strings.TrimPrefix(in.servers.url(1), "nats://"))
			through := "nats://" + link.Addr()
			g := in.connectedTo(through, in.servers.url(2))
			link.Hang(true)
			reconnected(in, g, "")
			kit.Must(in.T, g.Stop())
			link.Hang(false)
			g = in.connectedTo(through, in.servers.url(2))
			link.OnRequest(func(data []byte) kit.Action { // pings are answered
				if bytes.Contains(data, []byte("leaf.internal.presence")) && !bytes.Contains(data, []byte("SUB ")) {
					return kit.Drop
				}
				return kit.Forward
			})
			reconnected(in, g, "heartbeats do not come back")
		},
	},
	{
		fault: "a NATS server of a cluster falls silent", in: []setup{cluster}, fails: callers.AnyFailure,
		strike: func(in *installation) {
			i := in.follower("KV_" + bus.BucketTags)
			if i == 0 {
				i = 2 // callers are at the first
			}
			in.servers.routesOf(i, func(l *kit.Link) { l.Hang(true) })
			in.more(100)
			in.callAgain()
			in.servers.routesOf(i, func(l *kit.Link) { l.Hang(false) })
			in.servers.heal(i)
			in.held(3)
		},
	},
	{
		// The generator there hears nothing of what the others reserve meanwhile.
		fault: "a NATS server loses its routes, and the database is set back", in: []setup{clusterSQL}, fails: callers.AnyFailure,
		tags: []string{order, snowflakes}, alerts: []string{"segment.regressed.order"},
		strike: func(in *installation) {
			deaf := in.follower("KV_" + bus.BucketLedger)
			in.backUp()
			in.servers.cut(deaf)
			in.ahead(3000)
			in.servers.heal(deaf)
			in.kill((deaf + 1) % 3)
			in.kill((deaf + 2) % 3)
			in.setBack()
			in.ahead(3000)
		},
	},
	{
		// Its sender has given up. It must not happen later.
		fault: "a command comes late", in: []setup{kvLinked}, tags: none,
		strike: func(in *installation) {
			for what, on := range map[string]func(bool){
				"the network hung": func(on bool) { in.paths[0].Hang(on); in.paths[1].Hang(on) },
				"the processes stood still": func(on bool) {
					if on {
						in.each(in.freeze)
					} else {
						in.each(in.thaw)
					}
				},
			} {
				in.take(order)
				on(true)
				if msg, err := in.nc.Request(bus.SubjectTagsDelete, []byte(`{"tag":"order"}`), 2500*time.Millisecond); err == nil {
					in.Fatalf("%s: answered %s", what, msg.Data)
				}
				on(false)
				in.leaf("tag", "set", idle, "--description", what) // changes are carried out again
				if r := kit.Leaf(in.T, "tag", "show", order, "-s", in.url); r.Status != 0 {
					in.Errorf("%s: a command that had failed was carried out: %s", what, r.Stderr)
				}
			}
		},
	},
	{
		// The command names the generator. It asks the store before it hands out an ID, over HTTP too.
		fault: "a generator stands still while max_id moves", in: []setup{kv, inMySQL}, fails: callers.AnyFailure,
		strike: func(in *installation) {
			in.freeze(1)
			if out := in.leaf("tag", "set", order, "--max-id", "5000000", "--json"); !strings.Contains(out, `"n1"`) {
				in.Errorf("the answer does not name the generator: %s", out)
			}
			in.callers.Floor(order, 5_000_000)
			in.thaw(1)
			for range 10 {
				status, body := in.get(1, "/api/segment/get/order")
				if id, err := strconv.ParseInt(body, 10, 64); err != nil || id < 5_000_000 {
					in.Fatalf("answered %d %s after max_id was moved to 5000000", status, body)
				}
			}
			in.held(3)
		},
	},
	{
		// The command returns when every generator that is heard has dropped what it holds below.
		fault: "max_id moves while a generator is held up", in: []setup{kv, inMySQL}, fails: callers.AnyFailure,
		strike: func(in *installation) {
			for range 4 {
				in.more(50)
				floor := in.highest() + 1_000_000
				i := in.random.IntN(3)
				in.freeze(i)
				moved := kit.Start(in.T, kit.Command(in.T, in.TempDir(), nil, "tag", "set", order, "--max-id", fmt.Sprint(floor), "-s", in.url))
				pause(in, time.Second)
				in.thaw(i)
				if r := kit.Finish(in.T, moved); r.Status == 0 { // else the one that stood still was asked
					in.callers.Floor(order, floor)
				}
				in.more(50)
				in.callers.Check()
			}
		},
	},
}

// connectedTo starts a generator that has these servers in its list and is connected to the first. nats.go takes
// one at random.
func (in *installation) connectedTo(first, second string) *kit.Generator {
	in.Helper()
	for {
		g := kit.Serve(in.T, in.TempDir(), "-s", first+","+second)
		if g.URL == first {
			return g
		}
		kit.Must(in.T, g.Stop())
	}
}

// reconnected waits until a generator has gone to another server, and says why.
func reconnected(in *installation, g *kit.Generator, why string) {
	in.Helper()
	testkit.Eventually(in.T, "another server", func() bool {
		log := g.Stderr()
		return strings.Contains(log, "connected to NATS again") && strings.Contains(log, why)
	})
	in.callAgain()
}
