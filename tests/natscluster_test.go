package tests

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/proxy"
)

// threeServers is a cluster of NATS servers in the test's process. Each route goes through a proxy.
type threeServers struct {
	t       *testing.T
	servers [3]*natsServer
	routes  [3][3]*proxy.Proxy // from, to
}

func newThreeServers(t *testing.T) *threeServers {
	t.Helper()
	c := &threeServers{t: t}
	var listen [3]string
	for i := range listen {
		listen[i] = testkit.FreeAddress(t)
	}
	for i := range c.routes {
		var urls []string
		for j := range c.routes {
			if i == j {
				continue
			}
			p, err := proxy.Start(listen[j])
			must(t, err)
			t.Cleanup(p.Close)
			c.routes[i][j] = p
			urls = append(urls, fmt.Sprintf("%q", "nats://"+p.Addr()))
		}
		conf := filepath.Join(t.TempDir(), "nats.conf")
		// What servers gossip about each other leads nowhere: no route may go around its proxy.
		writeFile(t, conf, fmt.Sprintf("server_name: s%d\ncluster { name: c, listen: %q, advertise: \"127.0.0.1:1\", routes: [%s] }\n",
			i, listen[i], strings.Join(urls, ", ")))
		c.servers[i] = newNATSFrom(t, conf)
	}
	for i := range c.servers {
		c.awaitHealth(i)
	}
	return c
}

func (c *threeServers) url(i int) string { return c.servers[i].ClientURL() }

// cut closes all routes of a server, until heal.
func (c *threeServers) cut(i int) { c.refuse(i, true) }

// heal lets the servers connect again, and waits until they have.
func (c *threeServers) heal(i int) {
	c.t.Helper()
	c.refuse(i, false)
	for j := range c.servers {
		c.awaitHealth(j)
		c.awaitRoute(i, j)
	}
}

// follower is a server that does not lead a stream, so its routes can go without an election.
func (c *threeServers) follower(stream string) int {
	c.t.Helper()
	js := jetStream(c.t, connect(c.t, c.url(0)))
	var leader string
	testkit.Eventually(c.t, "a leader of "+stream, func() bool {
		s, err := js.Stream(c.t.Context(), stream)
		if err != nil {
			return false
		}
		leader = s.CachedInfo().Cluster.Leader
		return leader != ""
	})
	if leader == "s0" {
		return 1
	}
	return 0
}

func (c *threeServers) refuse(i int, on bool) {
	for j := range c.servers {
		if j != i {
			c.routes[i][j].Refuse(on)
			c.routes[j][i].Refuse(on)
		}
	}
}

func (c *threeServers) awaitHealth(i int) {
	c.t.Helper()
	testkit.Eventually(c.t, fmt.Sprintf("health of server s%d", i), func() bool { return c.servers[i].Health() == nil })
}

// awaitRoute waits until a message passes from one server to another.
func (c *threeServers) awaitRoute(from, to int) {
	c.t.Helper()
	sender, receiver := connect(c.t, c.url(from)), connect(c.t, c.url(to))
	arrived, err := receiver.SubscribeSync("route.test")
	must(c.t, err)
	testkit.Eventually(c.t, fmt.Sprintf("a message from s%d to s%d", from, to), func() bool {
		must(c.t, sender.Publish("route.test", nil))
		ctx, cancel := context.WithTimeout(c.t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := arrived.NextMsgWithContext(ctx)
		return err == nil
	})
	sender.Close()
	receiver.Close()
}
