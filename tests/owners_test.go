package tests

import (
	"encoding/json"
	"path"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/mariadb"
	"github.com/leafbus/leafbus/tests/proxy"
	"github.com/leafbus/leafbus/tests/zookeeper"
)

// owner is whose the workers in ZooKeeper are.
type owner struct {
	ID        string `json:"id"`
	ZooKeeper string `json:"zookeeper"`
}

func (p *place) owner(t *testing.T) (o owner) {
	t.Helper()
	text, _, err := p.conn.Get(path.Join("/leaf", p.name, "installation"))
	must(t, err)
	must(t, json.Unmarshal(text, &o))
	return o
}

// Two generators, each with a NATS of its own, share a database. If one of them
// has another ZooKeeper, it would take the workers that the other has, and both
// serve the same callers: it takes none. In the same ZooKeeper both serve.
func TestOneDatabaseTwoZooKeepers(t *testing.T) {
	t.Parallel()
	dsn, p, other := mariadb.NewDatabase(t), newPlace(t, zookeeper.Hosts(t)), newPlace(t, zookeeper.Hosts(t))
	first := embed(t, p.flags("--mysql", dsn, "--tag", "order")...)
	snowflake(t, connect(t, first.url))
	ours := p.owner(t).ID

	second := embed(t, other.flags("--mysql", dsn, "--max-wait", "100ms")...)
	nc := connect(t, second.url)
	c := bus.NewClient(nc)
	takeOne(t, c, "order")
	eventually(t, "it to say whom it waits for", func() bool {
		s := stateOf(t, c)
		if s.Worker != nil {
			t.Fatalf("it has worker %d", *s.Worker)
		}
		return lacks(s, "worker", "the database belongs to installation "+ours) && lacks(s, "worker", "to nobody yet")
	})
	refused(t, ask(t, nc, "leaf.snowflake", ""), 503, bus.NoWorkerID)
	if there, _, err := other.conn.Exists("/leaf/" + other.name); err != nil || there {
		t.Errorf("it made something in that ZooKeeper: %v, %v", there, err)
	}

	// Now that is somebody's, who has nothing to do with the two.
	third := embed(t, other.flags()...)
	snowflake(t, connect(t, third.url))
	say := []string{"the database belongs to installation " + ours, "to installation " + other.owner(t).ID, "--zookeeper-name"}
	result{second.wait(patience), "", second.stderr.String()}.want(t, 1, say...)
	runLeaf(t, command(t, second.dir, nil, append([]string{"serve", "--http", "", "--listen", "127.0.0.1:0", "--mysql", dsn}, other.flags()...))).want(t, 1, say...)

	second = second.again(t, p.flags("--mysql", dsn)...)
	urls := []string{first.url, second.url}
	var seen workersSeen
	flakes := startLoad(t, loadConfig{callers: 1, maxBatch: 500, each: seen.add}, urls...)
	segments := startLoad(t, loadConfig{tag: "order", callers: 1, maxBatch: 500}, urls...)
	eventually(t, "IDs of both", func() bool {
		flakes.more(20)
		segments.more(20)
		seen.mu.Lock()
		defer seen.mu.Unlock()
		return len(seen.count) == 2
	})
	flakes.stop()
	segments.stop()
	for _, url := range urls {
		takeOne(t, client(t, url), "order")
	}
}

// Nor may they share a ZooKeeper and have a database each: both would begin their
// segments at 1.
func TestOneZooKeeperTwoDatabases(t *testing.T) {
	t.Parallel()
	p, dsn := newPlace(t, zookeeper.Hosts(t)), mariadb.NewDatabase(t)
	first := embed(t, p.flags("--mysql", mariadb.NewDatabase(t), "--tag", "order")...)
	nc := connect(t, first.url)
	snowflake(t, nc)
	r := refusedStart(t, p.flags("--mysql", dsn, "--listen", "127.0.0.1:0")...)
	var theirs string
	must(t, openDB(t, dsn).QueryRowContext(t.Context(), "SELECT id FROM leaf_installation").Scan(&theirs))
	r.want(t, 1, "the database belongs to installation "+theirs, "to installation "+p.owner(t).ID, "--mysql", "--zookeeper-name")
	takeOne(t, bus.NewClient(nc), "order")
	snowflake(t, nc)
}

// ZooKeeper comes when a generator with a new database already waits for it: then
// the owners of both are asked for at once. The race detector looks on.
func TestZooKeeperComesLater(t *testing.T) {
	t.Parallel()
	p := newPlace(t, zookeeper.Hosts(t))
	way, err := proxy.Start(p.hosts)
	must(t, err)
	t.Cleanup(way.Close)
	p.hosts = way.Addr()
	way.Refuse(true)
	g := embed(t, p.flags("--mysql", mariadb.NewDatabase(t), "--tag", "order")...)
	nc := connect(t, g.url)
	c := bus.NewClient(nc)
	eventually(t, "it to miss ZooKeeper", func() bool {
		for _, why := range stateOf(t, c).Reasons {
			if strings.Contains(why, "ZooKeeper is not connected") {
				return true
			}
		}
		return false
	})
	way.Refuse(false)
	snowflake(t, nc)
	takeOne(t, c, "order")
}
