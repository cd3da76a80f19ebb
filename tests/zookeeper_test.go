package tests

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/proxy"
	"github.com/leafbus/leafbus/tests/zookeeper"
)

// place is where an installation has its workers in ZooKeeper.
type place struct {
	hosts, name string
	conn        *zk.Conn // an operator's
}

var places atomic.Int64

// newPlace is one that nobody has used, in a ZooKeeper that runs.
func newPlace(t *testing.T, hosts string) *place {
	t.Helper()
	p := &place{hosts: hosts, name: fmt.Sprintf("test-%d-%d", time.Now().UnixNano(), places.Add(1))}
	var err error
	p.conn, _, err = zk.Connect(strings.Split(hosts, ","), 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(muted{}))
	must(t, err)
	t.Cleanup(p.conn.Close)
	return p
}

// behind returns the place as generators see it through a proxy.
func (p *place) behind(t *testing.T) (*place, *proxy.Proxy) {
	t.Helper()
	way, err := proxy.Start(p.hosts)
	must(t, err)
	t.Cleanup(way.Close)
	seen := *p
	seen.hosts = way.Addr()
	return &seen, way
}

type muted struct{}

func (muted) Printf(string, ...any) {}

// flags are those of a generator that keeps its workers there.
func (p *place) flags(more ...string) []string {
	return append([]string{"--zookeeper", p.hosts, "--zookeeper-name", p.name}, more...)
}

// forever is the form of a worker's record.
type forever struct {
	IP            string `json:"ip"`
	Port          string `json:"port"`
	Timestamp     int64  `json:"timestamp"`
	Node          string `json:"node"`
	Incarnation   string `json:"incarnation"`
	ReservedUntil int64  `json:"reserved_until"`
	Acquired      int64  `json:"acquired"`
	Base          int64  `json:"base"`
}

// temporary is the form of what a generator says that runs.
type temporary struct {
	Node        string    `json:"node"`
	Incarnation string    `json:"incarnation"`
	IP          string    `json:"ip"`
	Port        string    `json:"port"`
	Host        string    `json:"host"`
	PID         int       `json:"pid"`
	Since       time.Time `json:"since"`
}

// node reads a node, and returns the session that it ends with, 0 if it does not;
// ok is false if there is none.
func node[T any](t *testing.T, p *place, names ...string) (v T, session int64, ok bool) {
	t.Helper()
	text, stat, err := p.conn.Get(path.Join(append([]string{"/leaf", p.name}, names...)...))
	if errors.Is(err, zk.ErrNoNode) {
		return v, 0, false
	}
	must(t, err)
	return parse[T](t, text), stat.EphemeralOwner, true
}

func (p *place) children(t *testing.T, folder string) []string {
	t.Helper()
	names, _, err := p.conn.Children(path.Join("/leaf", p.name, folder))
	must(t, err)
	slices.Sort(names)
	return names
}

// joins starts a generator that joins a NATS, in a folder of its own.
func (p *place) joins(t *testing.T, url, name string, more ...string) *generator {
	t.Helper()
	return serve(t, t.TempDir(), p.flags(append([]string{"-s", url, "--node", name}, more...)...)...)
}

// refusedStart runs a generator that must not start, and returns what it wrote.
func refusedStart(t *testing.T, args ...string) result {
	t.Helper()
	return leaf(t, append([]string{"serve", "--http", ""}, args...)...)
}

// Two generators have the first two workers. Their nodes are those of Leaf, with
// what is said of them in the package; they are listed as workers, and JetStream
// knows none.
func TestWorkersInZooKeeper(t *testing.T) {
	t.Parallel()
	p := newPlace(t, zookeeper.Hosts(t))
	server := newNATS(t)
	begin := time.Now().UnixMilli()
	one := p.joins(t, server.ClientURL(), "one", "--tag", "order")
	nc := connect(t, server.ClientURL())
	snowflake(t, nc)
	two := p.joins(t, server.ClientURL(), "two")
	c := bus.NewClient(nc)
	if workers := workersOf(t, c, "one", "two"); workers["one"] != 0 || workers["two"] != 1 {
		t.Errorf("workers %v", workers)
	}
	if names := p.children(t, "leaf_forever"); !slices.Equal(names, []string{"one-0000000000", "two-0000000001"}) {
		t.Errorf("records %q", names)
	}
	if names := p.children(t, "leaf_temporary"); !slices.Equal(names, []string{"one", "two"}) {
		t.Errorf("temporary nodes %q", names)
	}
	for i, g := range []*generator{one, two} {
		record, ends, _ := node[forever](t, p, "leaf_forever", fmt.Sprintf("%s-%010d", g.node, i))
		now := time.Now().UnixMilli()
		if record.IP != "127.0.0.1" || record.Port != "" || record.Timestamp < begin || record.Timestamp > now || ends != 0 ||
			record.Node != g.node || record.ReservedUntil < now+10_000 || record.ReservedUntil > now+60_000 || record.Base != 0 {
			t.Errorf("the record of %s is %+v at %d, and ends with session %x; want a minute reserved", g.node, record, now, ends)
		}
		runs, ends, _ := node[temporary](t, p, "leaf_temporary", g.node)
		if runs.Node != g.node || runs.Incarnation != record.Incarnation || runs.PID != g.cmd.Process.Pid || ends == 0 {
			t.Errorf("the temporary node of %s says %+v, and ends with session %x; its record: %+v", g.node, runs, ends, record)
		}
	}

	listed := parse[workersPage](t, []byte(leafOK(t, "workers", "--json", "-s", server.ClientURL())))
	if listed.Registry != "zookeeper" || len(listed.Workers) != 2 || listed.Workers[1].Worker != 1 || listed.Workers[1].Node != "two" || !listed.Workers[1].Running {
		t.Errorf("leaf workers: %+v", listed)
	}
	if text := leafOK(t, "workers", "-s", server.ClientURL()); !strings.Contains(text, "two") || !strings.Contains(text, "running") {
		t.Errorf("leaf workers: %s", text)
	}
	if e := lastEvent[workerEvent](t, jetStream(t, nc), "leaf.events.info.worker.acquired.1"); e.Node != "two" || e.Registry != "zookeeper" {
		t.Errorf("event %+v", e)
	}
	if _, err := jetStream(t, nc).KeyValue(t.Context(), bus.BucketWorkers); err == nil {
		t.Error("there is a bucket of workers, too")
	}

	// They come back as they were, and say when they go.
	for _, g := range []*generator{two, one} {
		g.stop()
		if _, _, ok := node[temporary](t, p, "leaf_temporary", g.node); ok {
			t.Errorf("%s has stopped, and its temporary node is there", g.node)
		}
		g.again(t, p.flags()...)
	}
	if workers := workersOf(t, c, "one", "two"); workers["one"] != 0 || workers["two"] != 1 {
		t.Errorf("workers %v after a restart", workers)
	}
	if names := p.children(t, "leaf_forever"); len(names) != 2 {
		t.Errorf("records %q", names)
	}
	takeOne(t, c, "order")
}

// The worker is counted from the low end of those that may be taken.
func TestRangesInZooKeeper(t *testing.T) {
	t.Parallel()
	for worker, args := range map[int64][]string{
		512: {"--worker-range", "512-1023"},
		96:  {"--datacenter", "3"},
		7:   {"--worker-id", "7"},
		48:  {"--datacenter", "3", "--datacenter-bits", "6"},
	} {
		p := newPlace(t, zookeeper.Hosts(t))
		g := embed(t, p.flags(append(args, "--node", "n")...)...)
		if got := partsOf(snowflake(t, connect(t, g.url))).worker; got != worker {
			t.Errorf("%v: worker %d, want %d", args, got, worker)
		}
		at, err := url.Parse(g.url)
		must(t, err)
		if record, _, ok := node[forever](t, p, "leaf_forever", "n-0000000000"); !ok || record.Base != worker || record.Port != at.Port() {
			t.Errorf("%v: record %+v, want port %s", args, record, at.Port())
		}
		g.stop()
	}
}

// A generator that was killed has its worker again at once: it does not wait for
// the end of the session that it has left.
func TestKilledWithZooKeeper(t *testing.T) {
	t.Parallel()
	p := newPlace(t, zookeeper.Hosts(t))
	server := newNATS(t)
	g := p.joins(t, server.ClientURL(), "n")
	nc := connect(t, server.ClientURL())
	last := snowflake(t, nc)
	_, left, _ := node[temporary](t, p, "leaf_temporary", "n")
	g.kill()
	starting := start(t, command(t, g.dir, nil, append([]string{"serve", "--http", "", "-s", server.ClientURL()}, p.flags()...)))
	testkit.Eventually(t, "a new temporary node", func() bool {
		_, now, ok := node[temporary](t, p, "leaf_temporary", "n")
		if !ok {
			t.Fatal("the session that was left ended before")
		}
		return now != left
	})
	ready(t, g.dir, starting)
	if id := snowflake(t, nc); id <= last || partsOf(id).worker != partsOf(last).worker {
		t.Errorf("%+v came after %+v", partsOf(id), partsOf(last))
	}
	if names := p.children(t, "leaf_forever"); len(names) != 1 {
		t.Errorf("records %q", names)
	}
}

// Two generators of one name: the second is refused, with a word about the first,
// which goes on. When the first was killed and its folder is gone, its name is
// free again as soon as its session is over.
func TestOneNameInZooKeeper(t *testing.T) {
	t.Parallel()
	p := newPlace(t, zookeeper.Hosts(t))
	server := newNATS(t)
	first := p.joins(t, server.ClientURL(), "twin")
	nc := connect(t, server.ClientURL())
	last := snowflake(t, nc)
	before, _, _ := node[temporary](t, p, "leaf_temporary", "twin")

	r := refusedStart(t, p.flags("-s", server.ClientURL(), "--node", "twin")...)
	r.want(t, 1, "another generator runs under the name twin", fmt.Sprintf("process %d on %s (127.0.0.1)", first.cmd.Process.Pid, before.Host), "--node")
	if after, _, _ := node[temporary](t, p, "leaf_temporary", "twin"); after != before {
		t.Errorf("the temporary node says %+v; it said %+v", after, before)
	}
	if id := snowflake(t, nc); id <= last || partsOf(id).worker != 0 {
		t.Errorf("%+v came after %+v", partsOf(id), partsOf(last))
	}

	first.kill()
	p.joins(t, server.ClientURL(), "twin")
	id := snowflake(t, nc)
	if partsOf(id).worker != 1 { // the other is reserved still
		t.Errorf("%+v came after %+v", partsOf(id), partsOf(last))
	}
	if after, _, ok := node[temporary](t, p, "leaf_temporary", "twin"); !ok || after.Incarnation == before.Incarnation {
		t.Errorf("the temporary node says %+v", after)
	}
}

// Each data centre may have a ZooKeeper of its own, for workers of its own. A
// worker that could be taken in two is refused.
func TestTwoZooKeepers(t *testing.T) {
	t.Parallel()
	east, west := newPlace(t, zookeeper.Hosts(t)), newPlace(t, zookeeper.New(t).Addr())
	server := newNATS(t)
	url := server.ClientURL()
	centres := map[string]*generator{
		"east": east.joins(t, url, "east", "--datacenter", "1"),
		"west": west.joins(t, url, "west", "--datacenter", "2"),
	}
	nc := connect(t, url)
	c := bus.NewClient(nc)
	holding := func() {
		t.Helper()
		// Who is asked for the workers knows those of its own ZooKeeper.
		testkit.Eventually(t, "one worker of each data centre", func() bool {
			found := make(map[string]int64)
			for _, s := range states(t, c, 2) {
				if s.Worker != nil {
					found[s.Node] = *s.Worker
				}
			}
			return found["east"] == 32 && found["west"] == 64
		})
	}
	holding()

	for _, c := range []struct {
		args []string
		say  string
	}{
		{west.flags("--datacenter", "1"), "keeps its workers in another place"},
		{east.flags("--worker-range", "60-70"), "it has the workers from 64 to 95"},
		{newPlace(t, east.hosts).flags(), "belongs to no installation: it lost its state, or is another one"},
	} {
		refusedStart(t, append(c.args, "-s", url)...).want(t, 1, c.say, "--zookeeper")
	}
	for name, g := range centres {
		p := east
		if name == "west" {
			p = west
		}
		g.kill()
		centres[name] = g.again(t, p.flags("--datacenter", map[string]string{"east": "1", "west": "2"}[name])...)
	}
	holding()
	snowflake(t, nc)
}

// In the ZooKeeper of a Leaf, a generator that moves beside it takes workers of its range, and leaves Leaf's nodes alone.
func TestWorkersBesideLeaf(t *testing.T) {
	t.Parallel()
	p := newPlace(t, zookeeper.Hosts(t))
	folder := "/snowflake/" + p.name + "/forever"
	const record = `{"ip":"10.0.0.1","port":"8080","timestamp":1567733700834}`
	for _, name := range []string{"/snowflake", path.Dir(folder), folder, folder + "/10.0.0.1:8080-0000000007"} {
		_, err := p.conn.Create(name, []byte(record), 0, zk.WorldACL(zk.PermAll))
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			t.Fatal(err)
		}
	}
	g := embed(t, p.flags("--worker-range", "512-1023")...)
	if worker := partsOf(snowflake(t, connect(t, g.url))).worker; worker < 512 {
		t.Errorf("the generator has worker %d, of Leaf's", worker)
	}
	g.stop()
	names, _, err := p.conn.Children(folder)
	must(t, err)
	text, stat, err := p.conn.Get(folder + "/10.0.0.1:8080-0000000007")
	must(t, err)
	if len(names) != 1 || string(text) != record || stat.Version != 0 {
		t.Errorf("Leaf's nodes are %q, and its record is %s", names, text)
	}
}
