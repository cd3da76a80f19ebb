//go:build compat

package drills

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
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
	for _, version := range []string{"v2.11.9", embeddedVersion(t)} {
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

// A cluster of old servers is refused. While a server of a good one is replaced by an old one, and leads the tags, a
// start is refused, and a generator that runs reserves nothing. It does not come back at the old server.
func TestCompatRefuses(t *testing.T) {
	const old = "v2.10.29"
	oldNATS, goodNATS := buildNATS(t, old), buildNATS(t, "v2.11.9")
	c := newNATSCluster(t, oldNATS)
	for i, url := range c.urls {
		kit.Leaf(t, "serve", "--http", "", "-s", url, "--tag", "order").
			Want(t, 1, fmt.Sprintf("the NATS server s%d at ", i), "has version "+old[1:], "upgrade")
	}

	c = newNATSCluster(t, goodNATS)
	g := c.serve("--tag", "order:10", "--max-step", "10")
	c.current()
	kit.Must(t, c.servers[2].Kill())
	c.binary = oldNATS
	c.start(2)
	c.current()
	const reason = "older than 2.11 leads the bucket"
	testkit.Eventually(t, "the old server leads the tags, and the generator says so", func() bool {
		stepDown(t, c.nc)
		time.Sleep(6 * time.Second) // a generator looks every 5 s
		return strings.Contains(g.Stderr(), reason)
	})
	kit.Leaf(t, "serve", "--http", "", "-s", c.urls[2]).Want(t, 1, "the NATS server s2 at ")
	kit.Must(t, c.servers[2].Kill())
	c.binary = goodNATS
	c.start(2)
	c.current()
	g.AwaitReady("segments")
}
