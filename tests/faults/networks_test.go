package faults

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// networks are faults between generators, NATS and operators.
var networks = []scenario{
	{
		fault: "the way to a NATS server hangs, and then passes no heartbeats on", in: []setup{kvAlone}, tags: none,
		strike: func(in *installation) {
			link := kit.NewLink(in.T, strings.TrimPrefix(in.url, "nats://"))
			g := in.connectedTo("nats://"+link.Addr(), in.url)
			link.Hang(true)
			in.reconnected(g, "")
			kit.Must(in.T, g.Stop())
			link.Hang(false)
			g = in.connectedTo("nats://"+link.Addr(), in.url)
			link.OnRequest(func(data []byte) kit.Action { // pings, also those in the same chunk, are answered
				heartbeat := []byte("PUB leaf.internal.presence")
				for i := bytes.Index(data, heartbeat); i >= 0; i = bytes.Index(data, heartbeat) {
					copy(data[i:], "PUB leaf.internal.presencX")
				}
				return kit.Forward
			})
			in.reconnected(g, "heartbeats do not come back")
		},
	},
	{
		fault: "the NATS server restarts", in: []setup{kv}, fails: once,
		strike: func(in *installation) {
			for range 2 {
				in.nats.Close()
				in.nats.start()
				in.callAgain()
			}
			in.ready(2)
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
		// Its sender has given up. It must not happen later.
		fault: "a command comes late", in: []setup{kvLinked}, tags: none,
		strike: func(in *installation) {
			hang := func(on bool) func(int) { return func(i int) { in.paths[i].Hang(on) } }
			for what, c := range map[string]struct{ stop, resume func(i int) }{
				"the network hung": {hang(true), hang(false)}, "the processes stood still": {in.freeze, in.thaw},
			} {
				in.take(order)
				in.each(c.stop)
				ctx, cancel := context.WithTimeout(in.Context(), 2500*time.Millisecond)
				if _, err := admin.NewClient(in.nc).DeleteTag(ctx, order); !errors.Is(err, context.DeadlineExceeded) {
					in.Fatalf("%s: answered %v", what, err)
				}
				cancel()
				in.each(c.resume)
				in.leaf("tag", "set", idle, "--description", what) // changes are carried out again
				if r := kit.Leaf(in.T, "tag", "show", order, "-s", in.url); r.Status != 0 {
					in.Errorf("%s: a command that had failed was carried out: %s", what, r.Stderr)
				}
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

// reconnected waits until a generator has gone another way, and says why.
func (in *installation) reconnected(g *kit.Generator, why string) {
	in.Helper()
	testkit.Eventually(in.T, "another connection", func() bool {
		log := g.Stderr()
		return strings.Contains(log, "connected to NATS again") && strings.Contains(log, why)
	})
	in.ready(2)
}
