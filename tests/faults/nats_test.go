package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	bundled "github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// natsServer is in the test's process, so that rows can stop it, change what it stores, and start it again.
type natsServer struct {
	*bundled.Server
	t   *testing.T
	cfg bundled.Config
}

// newNATS takes what a configuration file of nats-server says; empty: nothing.
func newNATS(t *testing.T, config string) *natsServer {
	t.Helper()
	s := &natsServer{t: t, cfg: bundled.Config{Listen: testkit.FreeAddress(t), StoreDir: t.TempDir(), Log: testkit.Quiet}}
	if config != "" {
		s.cfg.ConfigFile = filepath.Join(t.TempDir(), "nats.conf")
		kit.Must(t, os.WriteFile(s.cfg.ConfigFile, []byte(config), 0o600))
	}
	s.start()
	t.Cleanup(func() { s.Close() })
	return s
}

func (s *natsServer) start() {
	s.t.Helper()
	server, err := bundled.Start(s.cfg)
	kit.Must(s.t, err)
	s.Server = server
}

// folder is where the server keeps a stream.
func (s *natsServer) folder(stream string) string {
	return filepath.Join(s.cfg.StoreDir, "jetstream", "$G", "streams", stream)
}

// save copies streams while the server is down, and returns what puts these copies in their place.
func (s *natsServer) save(streams ...string) (putBack func()) {
	s.t.Helper()
	kept := s.t.TempDir()
	copyAll := func(from, to func(stream string) string) {
		s.Close()
		for _, stream := range streams {
			copyFolder(s.t, from(stream), to(stream))
		}
		s.start()
	}
	of := func(stream string) string { return filepath.Join(kept, stream) }
	copyAll(s.folder, of)
	return func() { copyAll(of, s.folder) }
}

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	kit.Must(t, os.RemoveAll(to))
	kit.Must(t, os.CopyFS(to, os.DirFS(from)))
}

// refuseWrites makes JetStream refuse every write to a bucket, as a full disk does, or no longer.
func (in *installation) refuseWrites(bucket string, on bool) {
	in.Helper()
	in.change(bucket, func(c *jetstream.StreamConfig) {
		c.MaxMsgSize = -1
		if on {
			c.MaxMsgSize = 1
		}
	})
}

// change changes the configuration of a bucket.
func (in *installation) change(bucket string, set func(*jetstream.StreamConfig)) {
	in.Helper()
	stream, err := in.js.Stream(in.Context(), "KV_"+bucket)
	kit.Must(in.T, err)
	cfg := stream.CachedInfo().Config
	set(&cfg)
	_, err = in.js.UpdateStream(in.Context(), cfg)
	kit.Must(in.T, err)
}

// bucket opens a bucket.
func (in *installation) bucket(name string) jetstream.KeyValue {
	in.Helper()
	kv, err := in.js.KeyValue(in.Context(), name)
	kit.Must(in.T, err)
	return kv
}

// natsCluster is three servers. Each route goes through a link.
type natsCluster struct {
	t       *testing.T
	servers [3]*natsServer
	routes  [3][3]*kit.Link // from, to
}

func newCluster(t *testing.T) *natsCluster {
	t.Helper()
	c := &natsCluster{t: t}
	var listen [3]string
	for i := range listen {
		listen[i] = testkit.FreeAddress(t)
	}
	for i := range c.routes {
		var urls []string
		for j := range c.routes {
			if i != j {
				c.routes[i][j] = kit.NewLink(t, listen[j])
				urls = append(urls, fmt.Sprintf("%q", "nats://"+c.routes[i][j].Addr()))
			}
		}
		// What servers gossip about each other leads nowhere: no route may go around its link.
		c.servers[i] = newNATS(t, fmt.Sprintf("server_name: s%d\n"+
			"cluster { name: c, listen: %q, advertise: \"127.0.0.1:1\", routes: [%s] }\n", i, listen[i], strings.Join(urls, ", ")))
	}
	c.healthy()
	return c
}

func (c *natsCluster) url(i int) string { return c.servers[i].ClientURL() }

func (c *natsCluster) healthy() {
	c.t.Helper()
	for i, s := range c.servers {
		testkit.Eventually(c.t, fmt.Sprint("health of server ", i), func() bool { return s.Health() == nil })
	}
}

// routesOf does something to all routes of a server.
func (c *natsCluster) routesOf(i int, do func(*kit.Link)) {
	for j := range c.servers {
		if j != i {
			do(c.routes[i][j])
			do(c.routes[j][i])
		}
	}
}

// cut parts a server from the others.
func (c *natsCluster) cut(i int) { c.routesOf(i, func(l *kit.Link) { l.Refuse(true) }) }

// heal waits until messages pass from and to the server again.
func (c *natsCluster) heal(i int) {
	c.t.Helper()
	c.routesOf(i, func(l *kit.Link) { l.Refuse(false) })
	c.healthy()
	for j := range c.servers {
		sender, receiver := kit.Connect(c.t, c.url(i)), kit.Connect(c.t, c.url(j))
		arrived, err := receiver.SubscribeSync("route.test")
		kit.Must(c.t, err)
		testkit.Eventually(c.t, "a message to another server", func() bool {
			kit.Must(c.t, sender.Publish("route.test", nil))
			ctx, cancel := context.WithTimeout(c.t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := arrived.NextMsgWithContext(ctx)
			return err == nil
		})
		sender.Close()
		receiver.Close()
	}
}

// follower is a server that does not lead a stream, so its routes can go without an election.
func (in *installation) follower(stream string) (i int) {
	in.Helper()
	testkit.Eventually(in.T, "a leader of "+stream, func() bool {
		s, err := in.js.Stream(in.Context(), stream)
		if err != nil || s.CachedInfo().Cluster == nil || s.CachedInfo().Cluster.Leader == "" {
			return false
		}
		if i = 0; s.CachedInfo().Cluster.Leader == "s0" {
			i = 1
		}
		return true
	})
	return i
}
