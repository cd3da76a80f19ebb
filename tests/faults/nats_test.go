package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	server "github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// natsServer is in the test's process, so that rows can stop it, change what it stores, and start it again.
type natsServer struct {
	*server.Server
	t   *testing.T
	cfg server.Config
}

// newNATS takes a configuration of nats-server.
func newNATS(t *testing.T, config string) *natsServer {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	kit.Must(t, os.WriteFile(file, []byte(config), 0o600))
	s := &natsServer{t: t, cfg: server.Config{
		Listen: testkit.FreeAddress(t), StoreDir: t.TempDir(), Log: testkit.Quiet, ConfigFile: file,
	}}
	s.start()
	t.Cleanup(func() { s.Close() })
	return s
}

func (s *natsServer) start() {
	s.t.Helper()
	// Another process may look at this moment whether the port is free.
	testkit.Eventually(s.t, "a NATS server at "+s.cfg.Listen, func() bool {
		started, err := server.Start(s.cfg)
		if err != nil && !errors.Is(err, server.ErrAddressInUse) {
			s.t.Fatal(err)
		}
		s.Server = started
		return err == nil
	})
}

// configure restarts the server with another configuration.
func (s *natsServer) configure(config string) {
	s.t.Helper()
	s.Close()
	kit.Must(s.t, os.WriteFile(s.cfg.ConfigFile, []byte(config), 0o600))
	s.start()
}

// save copies a bucket, and returns what puts the copy back. The server is down for either.
func (s *natsServer) save(bucket string) (putBack func()) {
	s.t.Helper()
	folder := filepath.Join(s.cfg.StoreDir, "jetstream", "$G", "streams", "KV_"+bucket)
	kept := s.t.TempDir()
	copyDown := func(from, to string) {
		s.Close()
		copyFolder(s.t, from, to)
		s.start()
	}
	copyDown(folder, kept)
	return func() { copyDown(kept, folder) }
}

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	kit.Must(t, os.RemoveAll(to))
	kit.Must(t, os.CopyFS(to, os.DirFS(from)))
}

// bucket opens a bucket.
func (in *installation) bucket(name string) jetstream.KeyValue {
	in.Helper()
	kv, err := in.js.KeyValue(in.Context(), name)
	kit.Must(in.T, err)
	return kv
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

// refuseWrites makes JetStream refuse every write to a bucket, as a full disk does, or no longer.
func (in *installation) refuseWrites(bucket string, on bool) {
	in.Helper()
	in.change(bucket, func(c *jetstream.StreamConfig) {
		if c.MaxMsgSize = -1; on {
			c.MaxMsgSize = 1
		}
	})
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
	listen := [3]string{testkit.FreeAddress(t), testkit.FreeAddress(t), testkit.FreeAddress(t)}
	for i := range c.routes {
		var urls []string
		for j := range c.routes {
			if i != j {
				c.routes[i][j] = kit.NewLink(t, listen[j])
				urls = append(urls, fmt.Sprintf("%q", "nats://"+c.routes[i][j].Addr()))
			}
		}
		// What servers gossip about each other leads nowhere: no route may go around its link.
		c.servers[i] = newNATS(t, fmt.Sprintf(`server_name: s%d
			cluster { name: c, listen: %q, advertise: "127.0.0.1:1", routes: [%s] }`, i, listen[i], strings.Join(urls, ", ")))
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

// heal ends what was done to the routes of a server, and waits until it reaches the others again.
func (c *natsCluster) heal(i int) {
	c.t.Helper()
	c.routesOf(i, func(l *kit.Link) { l.Hang(false); l.Refuse(false) })
	c.healthy()
	for j := range c.servers {
		sender, receiver := kit.Connect(c.t, c.url(i)), kit.Connect(c.t, c.url(j))
		arrived, err := receiver.SubscribeSync("route.test")
		kit.Must(c.t, err)
		testkit.Eventually(c.t, "a message to another server", func() bool {
			kit.Must(c.t, sender.Publish("route.test", nil))
			_, err := arrived.NextMsg(50 * time.Millisecond)
			return err == nil
		})
		sender.Close()
		receiver.Close()
	}
}

// follower is a server that does not lead a bucket, so its routes can go without an election, and not the first one.
func (in *installation) follower(bucket string) (i int) {
	in.Helper()
	testkit.Eventually(in.T, "a leader of "+bucket, func() bool {
		s, err := in.js.Stream(in.Context(), "KV_"+bucket)
		if err != nil || s.CachedInfo().Cluster == nil || s.CachedInfo().Cluster.Leader == "" {
			return false
		}
		if i = 1; s.CachedInfo().Cluster.Leader == "s1" {
			i = 2
		}
		return true
	})
	return i
}
