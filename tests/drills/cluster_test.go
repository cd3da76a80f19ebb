//go:build drills

package drills

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// token is the password of NATS and the token of HTTP in a cluster: its addresses are not loopback.
const token = "machines"

// cluster is generators whose embedded NATS servers form a cluster. Each is a machine of its own: a network
// namespace on a bridge to which the test is connected.
type cluster struct {
	t       *testing.T
	net     string   // the first three numbers of all addresses
	name    string   // of the bridge, and the beginning of the names of namespaces
	folders []string // working folders
	args    []string
	nodes   []*kit.Process
	nc      *nats.Conn
}

// newCluster starts three generators, and waits until all are ready. The first works in the folder first, if there is
// one.
func newCluster(t *testing.T, first string, args ...string) *cluster {
	t.Helper()
	n := rand.IntN(1 << 16)
	c := &cluster{t: t, net: fmt.Sprintf("10.%d.%d", 64+n>>10, n&0xff), name: fmt.Sprintf("leaf%04x", n), args: args}
	c.folders, c.nodes = []string{t.TempDir(), t.TempDir(), t.TempDir()}, make([]*kit.Process, 3)
	if first != "" {
		c.folders[0] = first
	}
	c.connect()
	for i := range c.nodes {
		c.start(i)
	}
	for i := range c.nodes {
		c.awaitReady(i)
	}
	c.nc = kit.Connect(t, c.urls())
	return c
}

// connect makes the network.
func (c *cluster) connect() {
	ip := func(args string) { c.t.Helper(); system(c.t, "ip", strings.Fields(args)...) }
	mac := func(host int) string { return fmt.Sprintf("02:00:00:00:00:%02x", host) }
	ip("link add " + c.name + " address " + mac(1) + " type bridge")
	c.t.Cleanup(func() { ip("link del " + c.name) })
	ip("addr add " + c.net + ".1/24 dev " + c.name)
	ip("link set " + c.name + " up")
	for i := range c.nodes {
		space := c.space(i)
		ip("netns add " + space)
		c.t.Cleanup(func() { ip("netns del " + space) })
		ip("link add " + space + " type veth peer name eth0 address " + mac(11+i) + " netns " + space)
		ip("link set " + space + " master " + c.name + " up")
		ip("-n " + space + " link set lo up")
		ip("-n " + space + " addr add " + c.host(i) + "/24 dev eth0")
		ip("-n " + space + " link set eth0 up")
		// All know each other. Otherwise a silent one is noticed because it answers no ARP.
		ip(fmt.Sprintf("neigh add %s lladdr %s dev %s nud permanent", c.host(i), mac(11+i), c.name))
		ip(fmt.Sprintf("-n %s neigh add %s.1 lladdr %s dev eth0 nud permanent", space, c.net, mac(1)))
		for j := range c.nodes {
			if j != i {
				ip(fmt.Sprintf("-n %s neigh add %s lladdr %s dev eth0 nud permanent", space, c.host(j), mac(11+j)))
			}
		}
	}
}

func (c *cluster) space(i int) string { return fmt.Sprint(c.name, "m", i) }
func (c *cluster) host(i int) string  { return fmt.Sprint(c.net, ".", 11+i) }
func (c *cluster) http(i int) string  { return "http://" + c.host(i) + ":8080" }
func (c *cluster) url(i int) string {
	return fmt.Sprintf("nats://leaf:%s@%s:4222", token, c.host(i))
}

func (c *cluster) urls() string {
	var urls []string
	for i := range c.nodes {
		urls = append(urls, c.url(i))
	}
	return strings.Join(urls, ",")
}

func (c *cluster) https() (addresses []string) {
	for i := range c.nodes {
		addresses = append(addresses, c.http(i))
	}
	return addresses
}

// start starts a generator that does not run.
func (c *cluster) start(i int) {
	c.t.Helper()
	var routes []string
	for j := range c.nodes {
		routes = append(routes, fmt.Sprintf("nats://route:%s@%s:6222", token, c.host(j)))
	}
	writeFile(c.t, filepath.Join(c.folders[i], "nats.conf"), fmt.Sprintf("server_name: s%d\nlisten: %q\n"+
		"cluster { name: leaf, listen: %q, authorization { user: route, password: %s }, routes: [%s] }\n",
		i, c.host(i)+":4222", c.host(i)+":6222", token, strings.Join(routes, ", ")))
	cmd := kit.Command(c.t, c.folders[i], nil, append([]string{"serve", "--node", fmt.Sprint("n", i), "--nats-config", "nats.conf",
		"--user", "leaf", "--password", token, "--http", c.host(i) + ":8080", "--http-token", token,
		"--events-max-bytes", "2000000", "--tag", "order:20000"}, c.args...)...)
	inside := exec.Command("ip", append([]string{"netns", "exec", c.space(i)}, cmd.Args...)...)
	inside.Dir, inside.Env = cmd.Dir, cmd.Env
	c.nodes[i] = kit.Start(c.t, inside)
}

// silence drops all packets of a machine and closes no connection.
func (c *cluster) silence(i int, on bool) {
	c.t.Helper()
	state := "up"
	if on {
		state = "down"
	}
	system(c.t, "ip", "link", "set", c.space(i), state)
}

func (c *cluster) kill(i int) {
	c.t.Helper()
	kit.Must(c.t, c.nodes[i].Kill())
}

// replace puts a machine with an empty disk in the place of one that is killed.
func (c *cluster) replace(i int) {
	c.t.Helper()
	c.kill(i)
	kit.Must(c.t, os.RemoveAll(filepath.Join(c.folders[i], "leaf-data")))
	c.start(i)
}

func (c *cluster) ready(i int) bool { return status(c.http(i), "/readyz") == http.StatusOK }

func (c *cluster) awaitReady(i int) {
	c.t.Helper()
	testkit.Eventually(c.t, fmt.Sprintf("n%d is ready", i), func() bool {
		if c.nodes[i].Ended() {
			c.t.Fatalf("n%d has ended: %s", i, c.nodes[i].Stderr())
		}
		return c.ready(i)
	})
}

// supervise starts a generator again if it ends, as a supervisor does, until it is ready.
func (c *cluster) supervise(i int) {
	c.t.Helper()
	testkit.Eventually(c.t, fmt.Sprintf("n%d is ready", i), func() bool {
		if c.nodes[i].Ended() {
			c.start(i)
		}
		return c.ready(i)
	})
}

// stream describes a stream as its leader sees it; nil: no answer.
func stream(t *testing.T, nc *nats.Conn, name string) *jetstream.StreamInfo {
	t.Helper()
	js, err := jetstream.New(nc)
	kit.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	s, err := js.Stream(ctx, name)
	if err != nil {
		return nil
	}
	return s.CachedInfo()
}

// leader is the number in the name of the server that leads a stream.
func leader(t *testing.T, nc *nats.Conn, name string) (i int) {
	t.Helper()
	testkit.Eventually(t, "a leader of "+name, func() bool {
		info := stream(t, nc, name)
		if info == nil || info.Cluster == nil {
			return false
		}
		_, err := fmt.Sscanf(info.Cluster.Leader, "s%d", &i)
		return err == nil
	})
	return i
}
