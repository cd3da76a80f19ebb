package tests

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
	"github.com/leafbus/leafbus/tests/proxy"
)

// split is two databases that each take themselves for the primary, and three generators. Each generator
// reaches one of the databases, through a proxy of its own.
type split struct {
	t     *testing.T
	addrs [2]string
	dbs   [2]*sql.DB
	ways  [3]*proxy.Proxy
	nc    *nats.Conn
	load  *load
}

// newSplit starts all three generators at the first database, under load.
func newSplit(t *testing.T) *split {
	t.Helper()
	dsn := mariadb.NewDatabase(t)
	cfg := parseDSN(t, dsn)
	other := mariadb.New(t)
	execute(t, openDB(t, other.DSN("")), "CREATE DATABASE "+cfg.DBName)
	s := &split{
		t: t, addrs: [2]string{cfg.Addr, other.Addr()},
		dbs: [2]*sql.DB{openDB(t, dsn), openDB(t, other.DSN(cfg.DBName))},
	}
	url := newNATS(t).ClientURL()
	s.nc = connect(t, url)
	for i := range s.ways {
		way, there := newProxy(t, dsn)
		s.ways[i] = way
		serve(t, t.TempDir(), "-s", url, "--mysql", there, "--node", fmt.Sprint("n", i), "--tag", "order:100", "--max-step", "200")
	}
	s.load = startLoad(t, loadConfig{
		tag: "order", callers: 4, maxBatch: 50, patience: 3 * time.Second, mayGiveUp: true, expected: anyRefusal,
	}, url, url)
	s.load.more(300)
	return s
}

// join copies one database to the other, while no generator reaches any, and leads every generator to
// where it belongs from now on.
func (s *split) join(from, to int, belongs [3]int) {
	s.t.Helper()
	for _, way := range s.ways {
		way.Refuse(true)
	}
	copyTables(s.t, s.dbs[from], s.dbs[to])
	for i, way := range s.ways {
		way.Delay(20 * time.Millisecond) // so a generator hears of another one's range after it asked for its own
		way.Lead(s.addrs[belongs[i]])
		way.Refuse(false)
	}
}

// grow waits until generators reserved so many IDs in a database.
func (s *split) grow(which int, by int64) {
	s.t.Helper()
	until := maxIDOf(s.t, s.dbs[which], "order") + by
	testkit.Eventually(s.t, "IDs that are reserved", func() bool {
		s.load.checkIDs()
		return maxIDOf(s.t, s.dbs[which], "order") >= until
	})
}

// end stops the load: no ID came twice, an audit agrees, and alerts name what was healed. It returns how many calls got
// no IDs.
func (s *split) end(expected ...bus.ContradictionKind) (unanswered int64) {
	s.t.Helper()
	s.load.stop()
	s.load.agrees(s.nc.ConnectedUrl(), expected...)
	count, text := s.load.unanswered()
	s.t.Log(text)
	noticed(s.t, s.nc, "order")
	return count
}

// One generator goes on to write to the old primary for a moment, while the others write to the new one.
func TestSplit(t *testing.T) {
	t.Parallel()
	s := newSplit(t)
	s.join(0, 1, [3]int{0, 1, 1})
	s.grow(0, 1500)
	s.grow(1, 1500)
	s.ways[0].Lead(s.addrs[1])
	s.grow(1, 5000)
	if s.end() > 0 {
		t.Error("callers were refused")
	}
}
