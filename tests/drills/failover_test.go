//go:build drills

package drills

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// failoverDB is the database's name on both servers.
const failoverDB = "leaf_failover"

// maxID is the next unclaimed ID of the tag order on a server; 0: it has no such row yet.
func maxID(t *testing.T, server *kit.MariaDB) (id int64) {
	t.Helper()
	db, err := sql.Open("mysql", server.DSN(failoverDB))
	kit.Must(t, err)
	defer db.Close()
	_ = db.QueryRow("SELECT max_id FROM leaf_alloc WHERE biz_tag = 'order'").Scan(&id) // 0 says it
	return id
}

// failOver lets the replica fall behind, kills the primary and makes the replica the primary. It returns how many IDs the new
// primary does not know.
func failOver(t *testing.T, p *kit.Pair, behind int64) (lost int64) {
	t.Helper()
	p.Lag(true)
	stale := maxID(t, p.Replica())
	testkit.Eventually(t, "a primary that is ahead", func() bool { return maxID(t, p.Primary()) > stale+behind })
	lost = maxID(t, p.Primary()) - stale
	kit.Must(t, p.Primary().Kill())
	time.Sleep(time.Second) // how long a failover takes
	p.FailOver()
	return lost
}

// The primary is killed while its replica is behind, and the replica takes over, again and again. Meanwhile generators are killed,
// frozen, restarted with an empty folder, and new. No ID comes twice, and the audit agrees.
func TestDrillFailover(t *testing.T) {
	p := kit.NewPair(t, failoverDB)
	url := natskit.Start(t).ClientURL()
	args := []string{"--mysql", p.DSN(), "--tag", "order:10000", "--max-step", "50000"}
	var all []*kit.Generator
	for i := range 3 {
		all = append(all, kit.Join(t, url, append(args, "--node", fmt.Sprint("n", i))...))
	}
	set := callers.New(t, callers.Config{Tags: []string{"order"}, Batch: 1000, Deadline: hasty, MayFail: callers.AnyFailure}).All(url)
	for round := range 4 {
		set.More(1000)
		set.Fault()
		lost := failOver(t, p, 200_000)
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
		p.Replicate()
	}
	set.More(1000)
	set.Stop()
	auditAgrees(t, url, "order", set)
}

// Two databases both take themselves for the primary for half a minute. Generators change sides at random moments. No ID comes
// twice.
func TestDrillSplitBrain(t *testing.T) {
	p := kit.NewPair(t, failoverDB)
	url := natskit.Start(t).ClientURL()
	kit.LeafOK(t, "migrate", "--mysql", p.DSN())
	var links []*kit.Link
	for i := range 3 {
		link := kit.NewLink(t, p.Primary().Addr())
		links = append(links, link)
		kit.Join(t, url, "--mysql", "root@tcp("+link.Addr()+")/"+failoverDB, "--tag", "order:100", "--max-step", "1000",
			"--node", fmt.Sprint("n", i))
	}
	testkit.Eventually(t, "the second database knows the tag", func() bool { return maxID(t, p.Replica()) > 0 })
	p.Split()
	set := callers.New(t, callers.Config{Tags: []string{"order"}, Batch: 500, Deadline: time.Second, MayFail: callers.AnyFailure}).All(url)
	set.More(300)
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); {
		links[rand.IntN(3)].Lead([]*kit.MariaDB{p.Primary(), p.Replica()}[rand.IntN(2)].Addr())
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
	}
	set.More(300)
	set.Stop()
}
