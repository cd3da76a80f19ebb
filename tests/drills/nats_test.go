//go:build drills || compat

package drills

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

const natsModule = "github.com/nats-io/nats-server/v2"

// embeddedVersion is the version of nats-server that leaf embeds.
func embeddedVersion(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", natsModule).Output()
	kit.Must(t, err)
	return strings.TrimSpace(string(out))
}

var (
	buildingNATS sync.Mutex
	builtNATS    = make(map[string]string)
)

// buildNATS returns the path of a nats-server of a version, which comes through the Go module proxy.
func buildNATS(t *testing.T, version string) string {
	t.Helper()
	buildingNATS.Lock()
	defer buildingNATS.Unlock()
	if builtNATS[version] == "" {
		dir, err := os.MkdirTemp("", "leaf-nats-")
		kit.Must(t, err)
		cmd := exec.Command("go", "install", natsModule+"@"+version)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-mod=mod")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building nats-server %s: %v\n%s", version, err, out)
		}
		builtNATS[version] = filepath.Join(dir, "nats-server")
	}
	return builtNATS[version]
}

// natsCluster is three processes of nats-server that form a cluster.
type natsCluster struct {
	t       *testing.T
	binary  string
	confs   [3]string
	urls    [3]string
	servers [3]*kit.Process
	nc      *nats.Conn
}

func newNATSCluster(t *testing.T, binary string) *natsCluster {
	t.Helper()
	c := &natsCluster{t: t, binary: binary}
	var routes []string
	for i := range c.servers {
		c.urls[i] = "nats://" + testkit.FreeAddress(t)
		routes = append(routes, "nats://"+testkit.FreeAddress(t))
	}
	for i := range c.servers {
		dir := t.TempDir()
		c.confs[i] = filepath.Join(dir, "nats.conf")
		kit.Must(t, os.WriteFile(c.confs[i], fmt.Appendf(nil, "server_name: s%d\nlisten: %q\nping_interval: 1s\n"+
			"jetstream { store_dir: %q }\ncluster { name: c, listen: %q, routes: [%s] }\n",
			i, strings.TrimPrefix(c.urls[i], "nats://"), dir, strings.TrimPrefix(routes[i], "nats://"), strings.Join(routes, ", ")), 0o600))
		c.start(i)
	}
	for i := range c.servers {
		testkit.Eventually(t, "a server that accepts connections", func() bool {
			nc, err := nats.Connect(c.urls[i])
			if err == nil {
				nc.Close()
			}
			return err == nil
		})
	}
	c.nc = kit.Connect(t, c.all())
	testkit.Eventually(t, "a JetStream that answers", func() bool {
		js, err := jetstream.New(c.nc)
		kit.Must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = js.AccountInfo(ctx)
		return err == nil
	})
	return c
}

func (c *natsCluster) start(i int) {
	c.t.Helper()
	c.servers[i] = kit.Start(c.t, exec.Command(c.binary, "-c", c.confs[i]))
}

// all are the URLs of all servers.
func (c *natsCluster) all() string { return strings.Join(c.urls[:], ",") }

// current waits until every server has all that the leaders of the buckets have: the next server may only go then.
func (c *natsCluster) current() {
	c.t.Helper()
	js, err := jetstream.New(c.nc)
	kit.Must(c.t, err)
	for _, bucket := range []string{"KV_LEAF_TAGS", "KV_LEAF_WORKERS"} {
		testkit.Eventually(c.t, "three current copies of "+bucket, func() bool {
			ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
			defer cancel()
			stream, err := js.Stream(ctx, bucket)
			if err != nil {
				return false
			}
			info := stream.CachedInfo().Cluster
			if info == nil || info.Leader == "" || len(info.Replicas) != 2 {
				return false
			}
			return info.Replicas[0].Current && info.Replicas[1].Current
		})
	}
}

// stepDown makes the leader of the tags give up.
func stepDown(t *testing.T, nc *nats.Conn) {
	t.Helper()
	testkit.Eventually(t, "a leader that gives up", func() bool {
		msg, err := nc.Request("$JS.API.STREAM.LEADER.STEPDOWN.KV_LEAF_TAGS", nil, time.Second)
		return err == nil && strings.Contains(string(msg.Data), `"success":true`)
	})
}
