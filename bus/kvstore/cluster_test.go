package kvstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
)

// member is a server of a cluster.
type member struct {
	*server.Server
	options *server.Options
}

// start starts the server, also after it was stopped.
func (m *member) start(t *testing.T) {
	t.Helper()
	ns, err := server.NewServer(m.options)
	if err != nil {
		t.Fatal(err)
	}
	m.Server = ns
	go ns.Start()
	t.Cleanup(m.stop)
}

func (m *member) stop() {
	m.Shutdown()
	m.WaitForShutdown()
}

// newCluster starts a NATS cluster and returns a connection to it.
func newCluster(t *testing.T, size int) *nats.Conn {
	nc, err := nats.Connect(startCluster(t, size)[0].ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func startCluster(t *testing.T, size int) []*member {
	t.Helper()
	for range 3 { // a port that was free may be taken by another test before the server has it
		if servers := tryCluster(t, size); servers != nil {
			return servers
		}
	}
	t.Fatal("a server of the cluster did not start")
	return nil
}

// tryCluster returns the servers of a cluster, or nil if one did not start.
func tryCluster(t *testing.T, size int) (servers []*member) {
	var routes []*url.URL
	ports := make([]int, size)
	for i := range ports {
		l, err := testkit.Listen()
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = l.Addr().(*net.TCPAddr).Port
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
		l.Close()
	}
	for i, port := range ports {
		m := &member{options: &server.Options{
			ServerName: fmt.Sprintf("s%d", i), Host: "127.0.0.1", Port: server.RANDOM_PORT,
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: port}, Routes: routes,
			JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		}}
		m.start(t)
		servers = append(servers, m)
	}
	for _, m := range servers {
		if !m.ReadyForConnections(10 * time.Second) {
			for _, m := range servers {
				m.Shutdown()
			}
			return nil
		}
	}
	return servers
}

// insist repeats what a cluster may fail to do in time.
func insist(ctx context.Context, t *testing.T, each time.Duration, do func(context.Context) error) {
	t.Helper()
	for {
		attempt, cancel := context.WithTimeout(ctx, each)
		err := do(attempt)
		cancel()
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// A bucket that is made again while a server is away has as many replicas as the others. It waits for the server.
func TestReplicasWhileAServerIsAway(t *testing.T) {
	t.Parallel()
	servers := startCluster(t, 3)
	nc, err := nats.Connect(servers[0].ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cfg := Config{JS: js, Log: slog.New(slog.DiscardHandler)}
	insist(ctx, t, 10*time.Second, func(ctx context.Context) error { _, err := open(ctx, cfg, wire.BucketInstallation); return err })
	if err := servers[2].DisableJetStream(); err != nil {
		t.Fatal(err)
	}
	insist(ctx, t, 10*time.Second, func(ctx context.Context) error {
		if _, err := open(ctx, cfg, wire.BucketTags); code(err) != codeNoPeers { // until the others notice it
			_ = js.DeleteKeyValue(ctx, wire.BucketTags)
			return fmt.Errorf("the bucket was made, or another error came: %w", err)
		}
		return nil
	})
	if _, err := js.Stream(ctx, streamOf(wire.BucketTags)); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("a bucket with fewer replicas: %v", err)
	}
}

// The state is kept three times where the cluster can, once where it cannot,
// and then a warning says so.
func TestReplicas(t *testing.T) {
	t.Parallel() // most of the time is the clusters', electing a leader
	for _, c := range []struct{ size, replicas int }{{3, 3}, {2, 1}} {
		t.Run(fmt.Sprintf("%d servers", c.size), func(t *testing.T) {
			t.Parallel()
			nc := newCluster(t, c.size)
			js, err := jetstream.New(nc)
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			cfg := Config{JS: js, Log: slog.New(slog.NewTextHandler(&log, nil))}
			r := NewRecords(cfg)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			// A cluster that forms has no leader yet, and may be late.
			insist(ctx, t, 500*time.Millisecond, func(ctx context.Context) error {
				_, err := js.AccountInfo(ctx)
				return err
			})
			insist(ctx, t, 10*time.Second, func(ctx context.Context) error {
				return CreateInstallation(ctx, cfg, Installation{ID: "ours"})
			})
			insist(ctx, t, 10*time.Second, func(ctx context.Context) error {
				return r.Open(ctx, Installation{ID: "ours"})
			})
			if got := r.bucket.Load().leader.CachedInfo().Config.Replicas; got != c.replicas {
				t.Errorf("%d replicas, want %d", got, c.replicas)
			}
			if warned := strings.Contains(log.String(), "level=WARN"); warned != (c.replicas == 1) {
				t.Errorf("the log says %q", log.String())
			}
			// Conflicts of replicated buckets have a code of their own.
			revision := swap(t, r, trend("order", 1), 0)
			for _, wrong := range []uint64{0, 999} {
				if _, err := r.Swap(ctx, trend("order", 1), wrong); !errors.Is(err, allocator.ErrConflict) {
					t.Errorf("a write on revision %d: %v", wrong, err)
				}
			}
			for range 40 { // two write at once
				made, errs := [2]uint64{}, [2]error{}
				var both sync.WaitGroup
				for i := range made {
					both.Go(func() { made[i], errs[i] = r.Swap(ctx, trend("order", 1), revision) })
				}
				both.Wait()
				lost := cmp.Or(errs[0], errs[1])
				if !errors.Is(lost, allocator.ErrConflict) ||
					errs[0] != nil && errs[1] != nil && !errors.Is(errs[1], allocator.ErrConflict) {
					t.Fatalf("%v, %v; want one conflict at least", errs[0], errs[1])
				}
				revision = max(revision, made[0], made[1])
			}
		})
	}
}

// A server that was alone still has its streams when it becomes one of a cluster. Until nats-server has deleted them
// nothing is created: a new stream would have the old records on that server, and not on the others.
func TestOldStore(t *testing.T) {
	t.Parallel()
	servers := startCluster(t, 3)
	for _, m := range servers {
		m.stop()
		m.options.StoreDir = t.TempDir()
	}
	clustered := *servers[0].options
	servers[0].options.Cluster, servers[0].options.Routes = server.ClusterOpts{}, nil
	servers[0].start(t)
	connect := func(m *member) jetstream.JetStream {
		m.ReadyForConnections(testkit.Patience)
		nc, err := nats.Connect(m.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		return js
	}
	open := func(js jetstream.JetStream) error {
		_, err := open(testkit.Context(t), Config{JS: js, Log: testkit.Quiet}, wire.BucketTags)
		return err
	}
	js := connect(servers[0])
	err := open(js)
	if err == nil {
		_, err = js.Publish(t.Context(), "$KV.LEAF_TAGS.order", []byte("old"))
	}
	if err != nil {
		t.Fatal(err)
	}
	servers[0].stop()
	*servers[0].options = clustered
	for _, m := range servers {
		m.start(t)
	}
	js = connect(servers[1])
	testkit.Eventually(t, "the servers report their stores", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		info, err := js.AccountInfo(ctx)
		return err == nil && info.Store > 0
	})
	if err := open(js); !errors.Is(err, allocator.ErrUnavailable) ||
		!strings.Contains(err.Error(), "streams from before") {
		t.Errorf("Open: %v", err)
	}

	testkit.Eventually(t, "all servers take a stream", func() bool {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other"},
			Replicas: 3})
		return err == nil
	})
	cfg := Config{JS: js, Log: testkit.Quiet}
	waits := allocator.ErrUnavailable
	for waited, want := range map[time.Duration]error{0: waits, oldStoreHidden / 2: waits, oldStoreHidden: nil} {
		if err := CheckOldStore(t.Context(), cfg, time.Now().Add(-waited)); !errors.Is(err, want) {
			t.Errorf("beside a stream of another program, after %s: %v, want %v", waited, err, want)
		}
	}

	servers[0].stop()
	servers[2].stop()
	testkit.Eventually(t, "JetStream has no leader", func() bool {
		err := CheckOldStore(t.Context(), cfg, time.Time{})
		return err != nil && strings.Contains(err.Error(), "start more than half of the servers")
	})
}
