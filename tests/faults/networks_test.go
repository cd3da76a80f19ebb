package faults

import (
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
