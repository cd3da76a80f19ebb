package tests

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/tests/mariadb"
	"github.com/leafbus/leafbus/tests/proxy"
	"github.com/leafbus/leafbus/tests/zookeeper"
)

// changingNATS is a NATS server that has JetStream at one time and none at another.
type changingNATS struct {
	t      *testing.T
	port   int
	folder string
	server *server.Server
}

func newChangingNATS(t *testing.T) *changingNATS {
	t.Helper()
	n := &changingNATS{t: t, port: server.RANDOM_PORT, folder: t.TempDir()}
	t.Cleanup(func() { n.stop() })
	return n
}

func (n *changingNATS) stop() {
	if n.server != nil {
		n.server.Shutdown()
		n.server.WaitForShutdown()
	}
}

// begin starts the server, anew and at the same address if it runs, and returns
// its URL.
func (n *changingNATS) begin(jetStream bool) string {
	n.t.Helper()
	n.stop()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: n.port, NoLog: true, NoSigs: true, JetStream: jetStream, StoreDir: n.folder,
	})
	must(n.t, err)
	s.Start()
	n.server = s
	if !s.ReadyForConnections(patience) {
		n.t.Fatal("the NATS server is not ready")
	}
	n.port = s.Addr().(*net.TCPAddr).Port
	return s.ClientURL()
}

// A generator that knows its installation, of which ZooKeeper has the record, does
// not start with another layout while ZooKeeper is away: its IDs could be those of
// others.
func TestLayoutWithoutJetStream(t *testing.T) {
	t.Parallel()
	url, p := plainNATS(t), newPlace(t, zookeeper.Hosts(t))
	way, err := proxy.Start(p.hosts)
	must(t, err)
	t.Cleanup(way.Close)
	p.hosts = way.Addr()
	args := p.flags("-s", url, "--mysql", mariadb.NewDatabase(t))
	g := serve(t, t.TempDir(), args...)
	snowflake(t, connect(t, url))
	g.stop()
	way.Refuse(true)
	r := runLeaf(t, command(t, g.dir, nil, append([]string{"serve", "--http", "", "--worker-bits", "8", "--sequence-bits", "14"}, args...)))
	r.want(t, 1, "the configuration is not that of installation "+p.owner(t).ID, "--worker-bits", "--sequence-bits")
	// As it was, it starts.
	serve(t, g.dir, args...)
	snowflake(t, connect(t, url))
}

// The NATS of an installation without JetStream gets it later, and loses it again.
// All the time there is one installation, whatever its generators know.
func TestJetStreamComesLater(t *testing.T) {
	t.Parallel()
	n, p := newChangingNATS(t), newPlace(t, zookeeper.Hosts(t))
	url := n.begin(false)
	args := p.flags("--mysql", mariadb.NewDatabase(t), "--tag", "order", "-s", url)
	first := serve(t, t.TempDir(), append(args, "--node", "first")...)
	snowflake(t, connect(t, url))
	sole := p.owner(t)
	if !sole.Sole || sole.Database == "" {
		t.Fatalf("ZooKeeper has %+v", sole)
	}
	first.stop()

	n.begin(true)
	first = serve(t, first.dir, args...)
	second := serve(t, t.TempDir(), append(args, "--node", "second")...)
	nc := connect(t, url)
	c := bus.NewClient(nc)
	if workers := workersOf(t, c, "first", "second"); workers["first"] == workers["second"] {
		t.Errorf("workers %v", workers)
	}
	kv, err := jetStream(t, nc).KeyValue(t.Context(), bus.BucketInstallation)
	must(t, err)
	entry, err := kv.Get(t.Context(), "installation")
	must(t, err)
	record := parse[kvstore.Installation](t, entry.Value())
	if z, ok := record.ZooKeeper(0, 0); record.ID != sole.ID || record.Database != sole.Database || !ok || z.ID != sole.ZooKeeper || z.Installation != sole.ID {
		t.Errorf("JetStream has %+v, ZooKeeper had %+v", record, sole)
	}

	n.begin(false)
	third := serve(t, t.TempDir(), append(args, "--node", "third")...)
	eventually(t, "the third to join", func() bool { return strings.Contains(third.stderr.String(), "this NATS has no JetStream") })
	workersOf(t, c, "first", "second", "third")
	for _, g := range []*generator{first, second, third} {
		select {
		case <-g.exited:
			t.Errorf("%s has ended", g.node)
		default:
		}
		if text := g.stderr.String(); strings.Contains(text, "level=ERROR") {
			t.Errorf("%s finds fault: %s", g.node, text)
		}
	}
	if now := p.owner(t); now != sole {
		t.Errorf("ZooKeeper has %+v, it had %+v", now, sole)
	}
	takeOne(t, c, "order")
}

// A start without JetStream that was cut off has claimed ZooKeeper and noted no
// database. Whoever takes that record along into JetStream notes its database in
// ZooKeeper too: else one without JetStream would take another database, and the same IDs.
func TestDatabaseIsNotedInZooKeeper(t *testing.T) {
	t.Parallel()
	p, dsn := newPlace(t, zookeeper.Hosts(t)), mariadb.NewDatabase(t)
	for _, node := range []struct{ where, text string }{
		{"/leaf", ""},
		{"/leaf/" + p.name, ""},
		{"/leaf/" + p.name + "/installation", `{"id":"S","zookeeper":"Z","sole":true,"epoch":1288834974657,"time_bits":41,"worker_bits":10,"sequence_bits":12,"created":"2026-01-02T03:04:05Z"}`},
		{"/leaf/" + p.name + "/installation/Z", ""},
	} {
		if _, err := p.conn.Create(node.where, []byte(node.text), 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			t.Fatal(err)
		}
	}
	g := embed(t, p.flags("--mysql", dsn, "--tag", "order")...)
	nc := connect(t, g.url)
	eventually(t, "an ID", func() bool { return len(ask(t, nc, "leaf.segment.order", "").Header) == 0 })

	refusedStart(t, p.flags("-s", plainNATS(t), "--mysql", mariadb.NewDatabase(t), "--tag", "order")...).
		want(t, 1, "installation S keeps its tags in database")
}
