package tests

import (
	"maps"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/mariadb"
	"github.com/leafbus/leafbus/tests/zookeeper"
)

// plainNATS is a NATS server without JetStream. It returns its URL.
func plainNATS(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	must(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the NATS server is not ready")
	}
	return s.ClientURL()
}

// Where NATS keeps nothing, the tags are in MySQL and the workers in ZooKeeper,
// which has the installation's record, too. Events reach those who listen.
// A generator with one of the two elsewhere is refused.
func TestWithoutJetStream(t *testing.T) {
	t.Parallel()
	url, dsn, p := plainNATS(t), mariadb.NewDatabase(t), newPlace(t, zookeeper.Hosts(t))
	nc := connect(t, url)
	c := bus.NewClient(nc)
	refills, err := nc.SubscribeSync("leaf.events.info.segment.refill.order")
	must(t, err)
	nodes := []string{"one", "two"}
	dirs := map[string]string{"one": t.TempDir(), "two": t.TempDir()}
	// Each waits for a while for a JetStream that may come: all do at once.
	begin := func(dir string, more ...string) *process {
		t.Helper()
		return start(t, command(t, dir, nil, append([]string{"serve", "--http", "", "-s", url}, more...)))
	}
	startAll := func() map[string]*generator {
		t.Helper()
		starting, running := make(map[string]*process), make(map[string]*generator)
		for _, name := range nodes {
			starting[name] = begin(dirs[name], p.flags("--mysql", dsn, "--tag", "order:10", "--node", name)...)
		}
		for name, process := range starting {
			running[name] = ready(t, dirs[name], process)
		}
		return running
	}
	running := startAll()
	workers := workersOf(t, c, nodes...)
	if len(workers) != len(nodes) || workers["one"]+workers["two"] != 1 {
		t.Errorf("workers %v, want 0 and 1", workers)
	}
	for name, g := range running {
		if log := g.stderr.String(); !strings.Contains(log, `level=WARN msg="this NATS has no JetStream: events reach those who listen`) {
			t.Errorf("the log of %s does not warn: %s", name, log)
		}
	}
	var seen workersSeen
	loads := []*load{
		startLoad(t, loadConfig{callers: 1, maxBatch: 500, patience: patience / 80, mayGiveUp: true, each: seen.add}, url),
		startLoad(t, loadConfig{callers: 1, maxBatch: 500, patience: patience / 80, mayGiveUp: true, tag: "order"}, url),
	}
	bothServe := func(when string) {
		t.Helper()
		filled := make(map[string]bool)
		seen.mu.Lock()
		clear(seen.count)
		seen.mu.Unlock()
		eventually(t, "both to serve "+when, func() bool {
			for _, l := range loads {
				l.more(20)
			}
			msg, err := refills.NextMsg(patience)
			must(t, err)
			filled[parse[map[string]any](t, msg.Data)["node"].(string)] = true
			seen.mu.Lock()
			defer seen.mu.Unlock()
			return len(filled) == len(nodes) && len(seen.count) == len(nodes)
		})
	}
	bothServe("at first")

	process := begin(t.TempDir(), p.flags("--mysql", mariadb.NewDatabase(t))...)
	result{process.wait(patience), process.stdout.String(), process.stderr.String()}.want(t, 1, "keeps its tags in", "--mysql")
	// A place in ZooKeeper that is nobody's is not claimed for a database that is
	// somebody's: who owns that may have its record in a JetStream that is away.
	elsewhere := newPlace(t, zookeeper.Hosts(t))
	process = begin(t.TempDir(), elsewhere.flags("--mysql", dsn)...)
	eventually(t, "it says what it waits for", func() bool {
		return strings.Contains(process.stderr.String(), "the database belongs to installation")
	})
	process.stop()
	if there, _, err := elsewhere.conn.Exists("/leaf/" + elsewhere.name); there || err != nil {
		t.Errorf("something was made in ZooKeeper (%v)", err)
	}
	running["one"].kill()
	running["two"].stop()
	startAll()
	bothServe("after a restart")
	if now := workersOf(t, c, nodes...); !maps.Equal(now, workers) {
		t.Errorf("the workers were %v and are %v", workers, now)
	}
	for _, l := range loads {
		l.stop()
	}
}
