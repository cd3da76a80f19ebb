//go:build compat

package drills

import (
	"fmt"
	"testing"
	"time"

	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// `make compat` runs generators on real clusters of several versions of nats-server.

// serve starts a generator that joins all servers.
func (c *natsCluster) serve(args ...string) *kit.Generator {
	c.t.Helper()
	return kit.Join(c.t, c.all(), append([]string{"--replicas", "3"}, args...)...)
}

// Three generators on a cluster of each version serve under load, while leaders give up and servers are killed, and no
// ID comes twice.
func TestCompatServes(t *testing.T) {
	for _, version := range []string{"v2.9.21", "v2.10.29", "v2.11.9", embeddedVersion(t)} {
		t.Run(version, func(t *testing.T) {
			c := newNATSCluster(t, buildNATS(t, version))
			for range 3 {
				c.serve("--tag", "order:10", "--max-step", "10") // each request or two is a compare-and-set
			}
			c.current()
			set := callers.New(t, callers.Config{
				Tags: []string{"order", callers.Snowflakes}, Batch: 20, Deadline: time.Second, MayFail: callers.AnyFailure,
			}).Take(c.all()).Raw(c.all()).Next(c.all())
			for i := range c.servers {
				set.More(500)
				stepDown(t, c.nc)
				set.More(500)
				kit.Must(t, c.servers[i].Kill())
				set.More(500)
				c.start(i)
				c.current()
			}
			set.More(1000)
			set.Stop()
		})
	}
}

// A cluster of old servers is refused, and so is a good one in which a server is replaced by an old one: at the start,
// and by generators that run.
func TestCompatRefuses(t *testing.T) {
	const old = "v2.9.20"
	oldNATS, goodNATS := buildNATS(t, old), buildNATS(t, "v2.11.9")
	refusal := func(i int) string { return fmt.Sprintf("the NATS server s%d at ", i) }
	c := newNATSCluster(t, oldNATS)
	for i, url := range c.urls {
		kit.Leaf(t, "serve", "--http", "", "-s", url, "--tag", "order").Want(t, 1, refusal(i), "has version "+old[1:])
	}

	c = newNATSCluster(t, goodNATS)
	running := []*kit.Generator{c.serve("--tag", "order"), kit.Join(t, c.urls[0]), kit.Join(t, c.urls[1])}
	c.current()
	kit.Must(t, c.servers[2].Kill())
	c.binary = oldNATS
	c.start(2)
	for _, g := range running {
		kit.Finish(t, g.Process).Want(t, 1, refusal(2), "has version "+old[1:])
	}
	for _, url := range c.urls { // at the start, or as soon as the servers know each other
		kit.Leaf(t, "serve", "--http", "", "-s", url, "--tag", "order").Want(t, 1, refusal(2), "has version "+old[1:])
	}
}
