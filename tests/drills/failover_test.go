//go:build drills

package drills

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// pair is a primary and a replica with asynchronous replication, behind one address.
type pair struct {
	t       *testing.T
	servers [2]*kit.MariaDB
	primary int // the index of the server that is the primary now
	id      int // the server ID that was given last
	link    *kit.Link
}

// failoverDB is the database's name on both servers.
const failoverDB = "leaf_failover"

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t}
	for i := range p.servers {
		p.servers[i] = kit.NewMariaDB(t, "--log-bin=binlog", "--log-slave-updates", fmt.Sprint("--server-id=", i+1))
		p.id++
	}
	kit.SQL(t, p.servers[0].DSN(""), "CREATE DATABASE "+failoverDB)
	p.link = kit.NewLink(t, p.servers[0].Addr())
	p.replicate()
	return p
}

// dsn leads to the primary.
func (p *pair) dsn() string { return fmt.Sprintf("root@tcp(%s)/%s", p.link.Addr(), failoverDB) }

// maxID is the next unclaimed ID of the tag order on a server; 0: it has no such row yet.
func (p *pair) maxID(i int) (id int64) {
	p.t.Helper()
	db, err := sql.Open("mysql", p.servers[i].DSN(failoverDB))
	kit.Must(p.t, err)
	defer db.Close()
	_ = db.QueryRow("SELECT max_id FROM leaf_alloc WHERE biz_tag = 'order'").Scan(&id) // 0 says it
	return id
}

// replicate makes the other server a replica that begins with nothing. The primary's log has all from the beginning.
func (p *pair) replicate() {
	p.t.Helper()
	host, port, _ := strings.Cut(p.servers[p.primary].Addr(), ":")
	p.id++ // a server ignores what it wrote itself, by this number
	kit.SQL(p.t, p.servers[1-p.primary].DSN(""), "STOP SLAVE", "RESET SLAVE ALL", "DROP DATABASE IF EXISTS "+failoverDB, "RESET MASTER",
		fmt.Sprint("SET GLOBAL server_id = ", p.id), "SET GLOBAL gtid_slave_pos = ''", fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='root', "+
			"MASTER_USE_GTID=slave_pos", host, port), "START SLAVE")
	testkit.Eventually(p.t, "a replica that has what the primary has", func() bool { return p.maxID(1-p.primary) == p.maxID(p.primary) })
}

// failOver lets the replica fall behind, kills the primary and makes the replica the primary. It returns how many IDs the new
// primary does not know.
func (p *pair) failOver(behind int64) (lost int64) {
	p.t.Helper()
	replica := 1 - p.primary
	kit.SQL(p.t, p.servers[replica].DSN(""), "STOP SLAVE SQL_THREAD")
	stale := p.maxID(replica)
	testkit.Eventually(p.t, "a primary that is ahead", func() bool { return p.maxID(p.primary) > stale+behind })
	lost = p.maxID(p.primary) - stale
	kit.Must(p.t, p.servers[p.primary].Kill())
	time.Sleep(time.Second) // until that is noticed
	p.primary = replica
	kit.SQL(p.t, p.servers[replica].DSN(""), "STOP SLAVE", "RESET SLAVE ALL")
	p.link.Lead(p.servers[replica].Addr())
	return lost
}

// The primary is killed while its replica is behind, and the replica takes over, again and again. Meanwhile generators are killed,
// frozen, restarted with an empty folder, and new. No ID comes twice, and the audit agrees.
func TestDrillFailover(t *testing.T) {
	p := newPair(t)
	url := natskit.Start(t).ClientURL()
	args := []string{"--mysql", p.dsn(), "--tag", "order:10000", "--max-step", "50000"}
	var all []*kit.Generator
	for i := range 3 {
		all = append(all, kit.Join(t, url, append(args, "--node", fmt.Sprint("n", i))...))
	}
	set := callers.New(t, callers.Config{Tags: []string{"order"}, Batch: 1000, Deadline: hasty, MayFail: callers.AnyFailure}).All(url)
	for round := range 4 {
		set.More(1000)
		set.Fault()
		lost := p.failOver(200_000)
		g := all[0]
		switch round {
		case 0: // a generator that knows nothing
			kit.Must(t, g.Kill())
			kit.Must(t, os.RemoveAll(g.Data))
			g = g.Again()
		case 1:
			kit.Must(t, g.Freeze())
			set.More(100)
			kit.Must(t, g.Thaw())
		case 2:
			kit.Must(t, g.Kill())
			g = g.Again()
		case 3:
			kit.Must(t, g.Stop())
			g = kit.Join(t, url, append(args, "--node", "new")...)
		}
		all = append(all[1:], g)
		set.More(2000)
		set.Check()
		t.Logf("round %d: the new primary did not know %d IDs", round, lost)
		kit.Must(t, p.servers[1-p.primary].Run())
		p.replicate()
	}
	set.More(1000)
	set.Stop()
	auditAgrees(t, url, "order", set)
}

// Two databases both take themselves for the primary for half a minute. Generators change sides at random moments. No ID comes
// twice.
func TestDrillSplitBrain(t *testing.T) {
	p := newPair(t)
	url := natskit.Start(t).ClientURL()
	kit.LeafOK(t, "migrate", "--mysql", p.dsn())
	var links []*kit.Link
	for i := range 3 {
		link := kit.NewLink(t, p.servers[0].Addr())
		links = append(links, link)
		kit.Join(t, url, "--mysql", "root@tcp("+link.Addr()+")/"+failoverDB, "--tag", "order:100", "--max-step", "1000",
			"--node", fmt.Sprint("n", i))
	}
	testkit.Eventually(t, "the second database knows the tag", func() bool { return p.maxID(1) > 0 })
	kit.SQL(t, p.servers[1].DSN(""), "STOP SLAVE", "RESET SLAVE ALL")
	set := callers.New(t, callers.Config{Tags: []string{"order"}, Batch: 500, Deadline: time.Second, MayFail: callers.AnyFailure}).All(url)
	set.More(300)
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); {
		links[rand.IntN(3)].Lead(p.servers[rand.IntN(2)].Addr())
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
	}
	set.More(300)
	set.Stop()
}
