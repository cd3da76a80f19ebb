package tests

import (
	"encoding/json"
	"path"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
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

func ownerOfDatabase(t *testing.T, dsn string) (id string) {
	t.Helper()
	must(t, openDB(t, dsn).QueryRowContext(t.Context(), "SELECT id FROM leaf_installation").Scan(&id))
	return id
}

// Two machines that run a NATS each know nothing of each other. What belongs to the installation of one is
// refused to the other, in one sentence that names both and says what to do.
func TestWhatBelongsToAnother(t *testing.T) {
	t.Parallel()
	dsn, p := mariadb.NewDatabase(t), newPlace(t, zookeeper.Hosts(t))
	first := embed(t, p.flags("--mysql", dsn, "--tag", "order")...)
	nc := connect(t, first.url)
	snowflake(t, nc)
	theirs := p.owner(t).ID
	if id := ownerOfDatabase(t, dsn); id != theirs {
		t.Fatalf("the database belongs to %s, ZooKeeper to %s", id, theirs)
	}
	const database, workers = "the database belongs to installation ", ") belongs to installation "
	refusals := map[string]struct {
		args []string
		say  []string
	}{
		"the database":                      {[]string{"--mysql", dsn}, []string{database + theirs, "--mysql", "join the NATS of " + theirs + " (--server) with a new --data-dir"}},
		"the database, its own ZooKeeper":   {newPlace(t, p.hosts).flags("--mysql", dsn), []string{database + theirs, "--mysql"}},
		"the ZooKeeper":                     {p.flags(), []string{workers + theirs, "--zookeeper-name"}},
		"the ZooKeeper, its own database":   {p.flags("--mysql", mariadb.NewDatabase(t)), []string{workers + theirs, "--zookeeper-name"}},
		"the ZooKeeper, with another epoch": {p.flags("--epoch", "1700000000000"), []string{workers + theirs}},
		"both":                              {p.flags("--mysql", dsn), []string{database + theirs, "--mysql"}},
	}
	t.Run("refused", func(t *testing.T) {
		for name, c := range refusals {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				for range 2 { // nor after a restart, whatever its folder knows
					r := runLeaf(t, command(t, dir, nil, append([]string{"serve", "--http", "", "--listen", "127.0.0.1:0", "--tag", "order"}, c.args...)))
					r.want(t, 1, c.say...)
				}
			})
		}
	})
	takeOne(t, bus.NewClient(nc), "order")
	snowflake(t, nc)
}

// A database whose server is away at the start turns out to be another's: the generator serves
// nothing until then, and ends.
func TestAnothersDatabaseComesLater(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	embed(t, "--mysql", dsn).stop()
	theirs := ownerOfDatabase(t, dsn)
	way, there := newProxy(t, dsn)
	way.Refuse(true)
	g := embedLacking(t, "segments,snowflakes", "--mysql", there, "--tag", "order", "--max-wait", "100ms")
	nc := connect(t, g.url)
	refused(t, ask(t, nc, "leaf.snowflake", ""), 503, bus.NoWorkerID)
	untilUnavailable(t, nc, "order")
	way.Refuse(false)
	result{g.wait(patience), "", g.stderr.String()}.want(t, 1, "the database belongs to installation "+theirs)
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
	g := embedLacking(t, "segments,snowflakes", p.flags("--mysql", mariadb.NewDatabase(t), "--tag", "order")...)
	nc := connect(t, g.url)
	c := bus.NewClient(nc)
	testkit.Eventually(t, "it to miss ZooKeeper", func() bool {
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
