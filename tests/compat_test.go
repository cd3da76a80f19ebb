//go:build compat

package tests

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// `make compat` runs generators on real clusters of several versions of nats-server,
// which come through the Go module proxy.

const natsModule = "github.com/nats-io/nats-server/v2"

// embeddedVersion is the version that leaf embeds.
func embeddedVersion(t *testing.T) string {
	t.Helper()
	return strings.TrimPrefix(goList(t, "-m", "-f", "{{.Version}}", natsModule)[0], "v")
}

// buildNATS returns a nats-server of a version.
func buildNATS(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("go", "install", natsModule+"@v"+version)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building nats-server %s: %v\n%s", version, err, out)
	}
	return filepath.Join(dir, "nats-server")
}

// natsCluster is three processes of nats-server that form a cluster.
type natsCluster struct {
	t       *testing.T
	binary  string
	confs   [3]string
	urls    [3]string
	servers [3]*process
}

func newNATSCluster(t *testing.T, binary string) *natsCluster {
	t.Helper()
	c := &natsCluster{t: t, binary: binary}
	var routes [3]string
	for i := range c.servers {
		c.urls[i], routes[i] = freeAddress(t), freeAddress(t)
	}
	for i := range c.servers {
		dir := t.TempDir()
		c.confs[i] = filepath.Join(dir, "nats.conf")
		writeFile(t, c.confs[i], fmt.Sprintf(`server_name: s%d
listen: %q
jetstream { store_dir: %q }
cluster { name: c, listen: %q, routes: [%q, %q, %q] }
`, i, strings.TrimPrefix(c.urls[i], "nats://"), dir, strings.TrimPrefix(routes[i], "nats://"), routes[0], routes[1], routes[2]))
		c.start(i)
	}
	for i := range c.servers {
		c.accepts(i)
	}
	return c
}

func (c *natsCluster) start(i int) {
	c.t.Helper()
	c.servers[i] = start(c.t, exec.Command(c.binary, "-c", c.confs[i]))
}

// accepts waits until a server takes connections.
func (c *natsCluster) accepts(i int) {
	c.t.Helper()
	testkit.Eventually(c.t, "a server that accepts connections", func() bool {
		nc, err := nats.Connect(c.urls[i])
		if err != nil {
			return false
		}
		nc.Close()
		return true
	})
}

// all are the URLs of all servers.
func (c *natsCluster) all() string { return strings.Join(c.urls[:], ",") }

// current waits until every server has all that the stream's leader has, and each
// bucket has three copies: the next server may only go then.
func (c *natsCluster) current() {
	c.t.Helper()
	js := jetStream(c.t, connect(c.t, c.all()))
	for _, bucket := range []string{bus.BucketTags, bus.BucketWorkers} {
		testkit.Eventually(c.t, "three current copies of "+bucket, func() bool {
			ctx, cancel := context.WithTimeout(c.t.Context(), patience/10)
			defer cancel()
			stream, err := js.Stream(ctx, "KV_"+bucket)
			if err != nil {
				return false
			}
			cluster := stream.CachedInfo().Cluster
			if cluster == nil || cluster.Leader == "" || len(cluster.Replicas) != 2 {
				return false
			}
			for _, r := range cluster.Replicas {
				if !r.Current || r.Offline {
					return false
				}
			}
			return true
		})
	}
}

// stepDown makes the leader of the tags give up.
func (c *natsCluster) stepDown() {
	c.t.Helper()
	nc := connect(c.t, c.all())
	testkit.Eventually(c.t, "a leader that gives up", func() bool {
		msg, err := nc.Request("$JS.API.STREAM.LEADER.STEPDOWN.KV_"+bus.BucketTags, nil, patience/10)
		return err == nil && strings.Contains(string(msg.Data), `"success":true`)
	})
}

// Three generators on a cluster of each version serve under load, while leaders give
// up and servers are killed, and no ID comes twice.
func TestCompatServes(t *testing.T) {
	for _, version := range []string{"2.9.21", "2.10.29", "2.11.9", embeddedVersion(t)} {
		t.Run(version, func(t *testing.T) {
			c := newNATSCluster(t, buildNATS(t, version))
			var generators []*generator
			for range 3 {
				// Small steps, which stay so: each request or two is a compare-and-set.
				generators = append(generators, c.serve("--tag", "order:10", "--max-step", "10"))
			}
			c.current()
			var loads []*load
			for tag, callers := range map[string]int{"order": 4, "": 1} {
				loads = append(loads, startLoad(t, loadConfig{
					tag: tag, callers: callers, maxBatch: 20, patience: patience / 40, mayGiveUp: true,
					expected: []bus.Reason{bus.NoWorkerID, bus.StoreUnavailable, bus.TimedOut},
				}, c.all(), c.all()))
			}
			more := func(replies int64) {
				for _, l := range loads {
					l.more(replies)
				}
			}
			for i := range c.servers {
				more(500)
				c.stepDown()
				more(500)
				c.servers[i].kill()
				more(500)
				c.start(i)
				c.current()
			}
			more(1000)
			for _, l := range loads {
				l.stop() // prints how many
			}
			for _, g := range generators {
				g.stop()
			}
		})
	}
}

// serve starts a generator that joins all servers, once they have elected a leader.
func (c *natsCluster) serve(args ...string) *generator {
	c.t.Helper()
	js := jetStream(c.t, connect(c.t, c.all()))
	testkit.Eventually(c.t, "a JetStream that answers", func() bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), patience/40)
		defer cancel()
		_, err := js.AccountInfo(ctx)
		return err == nil
	})
	return serve(c.t, c.t.TempDir(), append([]string{"-s", c.all(), "--replicas", "3"}, args...)...)
}

// A cluster of old servers is refused, and so is a good one in which a server is
// replaced by an old one: at the start, and by generators that run.
func TestCompatRefuses(t *testing.T) {
	const old = "2.9.20"
	oldNATS, goodNATS := buildNATS(t, old), buildNATS(t, "2.11.9")
	refusal := func(i int, url string) string {
		return fmt.Sprintf("leaf: the NATS server s%d at %s has version %s, ", i, strings.TrimPrefix(url, "nats://"), old)
	}

	c := newNATSCluster(t, oldNATS)
	for i, url := range c.urls {
		r := leaf(t, "serve", "--http", "", "-s", url, "--tag", "order")
		r.want(t, 1, refusal(i, url))
		t.Log(strings.TrimSpace(r.stderr))
	}

	c = newNATSCluster(t, goodNATS)
	running := []*generator{c.serve("--tag", "order"), serve(t, t.TempDir(), "-s", c.urls[0]), serve(t, t.TempDir(), "-s", c.urls[1])}
	c.current()
	c.servers[2].kill()
	c.binary = oldNATS
	c.start(2)
	for _, g := range running {
		if status := g.wait(patience); status != 1 {
			t.Errorf("exit status %d, want 1", status)
		}
		if stderr := g.stderr.String(); !strings.Contains(stderr, "\n"+refusal(2, c.urls[2])) {
			t.Errorf("%v does not refuse the server that is old now", g.cmd.Args)
		}
	}
	for _, url := range c.urls { // at the start, or as soon as the servers know each other
		leaf(t, "serve", "--http", "", "-s", url, "--tag", "order").want(t, 1, refusal(2, c.urls[2]))
	}
}
