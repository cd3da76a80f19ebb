//go:build drills

package tests

import (
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
	"github.com/leafbus/leafbus/tests/proxy"
)

// failoversEnv is how many failovers TestDrillFailover makes. Default: 5.
const failoversEnv = "LEAF_TEST_FAILOVERS"

// pair is a primary and a replica with asynchronous replication, behind one address.
type pair struct {
	t       *testing.T
	name    string // of the database
	servers [2]*mariadb.Server
	primary int // the index of the server that is the primary now
	way     *proxy.Proxy
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t, name: "leaf_failover"}
	var starting sync.WaitGroup
	for i := range p.servers {
		starting.Go(func() { p.servers[i] = mariadb.New(t, "--log-bin=binlog", fmt.Sprint("--server-id=", i+1)) })
	}
	if starting.Wait(); t.Failed() {
		t.FailNow()
	}
	execute(t, p.db(0, ""), "CREATE DATABASE "+p.name)
	var err error
	p.way, err = proxy.Start(p.servers[0].Addr())
	must(t, err)
	t.Cleanup(p.way.Close)
	p.replicate()
	return p
}

// db opens a database of one of the servers.
func (p *pair) db(i int, name string) *sql.DB { return openDB(p.t, p.servers[i].DSN(name)) }

// dsn leads to the primary.
func (p *pair) dsn() string { return through(p.t, p.servers[0].DSN(p.name), p.way.Addr()) }

// maxID is the tag's number on a server.
func (p *pair) maxID(i int) int64 { return maxIDOf(p.t, p.db(i, p.name), "order") }

// replicate makes the other server a replica that has what the primary has.
func (p *pair) replicate() {
	p.t.Helper()
	from, to := p.db(p.primary, p.name), p.db(1-p.primary, "")
	locked, err := from.Conn(p.t.Context())
	must(p.t, err)
	defer locked.Close()
	_, err = locked.ExecContext(p.t.Context(), "FLUSH TABLES WITH READ LOCK")
	must(p.t, err)
	var position string
	must(p.t, locked.QueryRowContext(p.t.Context(), "SELECT @@gtid_binlog_pos").Scan(&position))
	execute(p.t, to, "STOP SLAVE", "RESET SLAVE ALL", "DROP DATABASE IF EXISTS "+p.name, "CREATE DATABASE "+p.name)
	copyTables(p.t, from, p.db(1-p.primary, p.name))
	host, port, _ := strings.Cut(p.servers[p.primary].Addr(), ":")
	execute(p.t, to, "RESET MASTER", "SET GLOBAL gtid_slave_pos = '"+position+"'",
		fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='root', MASTER_USE_GTID=slave_pos", host, port),
		"START SLAVE")
	_, err = locked.ExecContext(p.t.Context(), "UNLOCK TABLES")
	must(p.t, err)
}

// lag stops the replica, and waits until the primary is so many IDs and so long ahead of it.
func (p *pair) lag(ids int64, long time.Duration) {
	p.t.Helper()
	replica := 1 - p.primary
	primary, copied := p.db(p.primary, p.name), p.db(replica, p.name)
	testkit.Eventually(p.t, "a replica that follows", func() bool {
		return maxIDOf(p.t, primary, "order") == maxIDOf(p.t, copied, "order")
	})
	execute(p.t, copied, "STOP SLAVE SQL_THREAD")
	began, stale := time.Now(), maxIDOf(p.t, copied, "order")
	testkit.Eventually(p.t, "a primary that is far ahead", func() bool {
		return maxIDOf(p.t, primary, "order") > stale+ids && time.Since(began) > long
	})
}

// failOver kills the primary and makes the replica the primary. It returns the tag's number on both.
func (p *pair) failOver() (was, is int64) {
	p.t.Helper()
	was = p.maxID(p.primary)
	must(p.t, p.servers[p.primary].Kill())
	time.Sleep(time.Second) // until that is noticed
	p.primary = 1 - p.primary
	execute(p.t, p.db(p.primary, p.name), "STOP SLAVE", "RESET SLAVE ALL")
	is = p.maxID(p.primary)
	p.way.Lead(p.servers[p.primary].Addr())
	return was, is
}

// fleet is the generators of a failover, the oldest first.
type fleet struct {
	t          *testing.T
	args       []string
	generators []*generator
	started    int
}

// grow starts a brand new generator.
func (f *fleet) grow() {
	f.t.Helper()
	f.started++
	f.generators = append(f.generators, serve(f.t, f.t.TempDir(), append(f.args, "--node", fmt.Sprint("n", f.started))...))
}

// forget restarts the oldest generator with an empty folder.
func (f *fleet) forget() {
	f.t.Helper()
	g := f.generators[0]
	g.stop()
	must(f.t, os.RemoveAll(g.folder))
	f.generators = append(f.generators[1:], serve(f.t, g.dir, append(f.args, "--node", g.node)...))
}

// retire stops the oldest generator.
func (f *fleet) retire() {
	f.t.Helper()
	f.generators[0].stop()
	f.generators = f.generators[1:]
}

// The primary is killed while its replica is seconds behind, and the replica takes over, again and again. Right
// after, a generator is restarted with an empty folder, and a brand new one starts. No ID comes twice, and no
// request is refused.
func TestDrillFailover(t *testing.T) {
	rounds := 5
	if text := os.Getenv(failoversEnv); text != "" {
		var err error
		rounds, err = strconv.Atoi(text)
		must(t, err)
	}
	p := newPair(t)
	url := newNATS(t).ClientURL()
	nc := connect(t, url)
	f := &fleet{t: t, args: []string{"-s", url, "--mysql", p.dsn(), "--tag", "order:10000", "--max-step", "50000"}}
	for range 3 {
		f.grow()
	}
	l := startLoad(t, loadConfig{
		tag: "order", callers: 4, maxBatch: 20, patience: 3 * time.Second, mayGiveUp: true, expected: anyRefusal,
	}, url)
	hasty := startLoad(t, loadConfig{
		tag: "order", callers: 1, patience: probeDeadline, mayGiveUp: true, expected: anyRefusal,
		each: func(r bus.Range) { l.record([]bus.Range{r}, 0) },
	}, url)
	for round := range rounds {
		ids, replies := l.ids.Load(), l.replies.Load()
		refused, _ := l.unanswered()
		hasty.longest.Store(0)
		l.more(500)
		p.lag(200_000, 2*time.Second)
		was, is := p.failOver()
		f.forget()
		f.grow()
		testkit.Eventually(t, "higher IDs, and some of every generator", func() bool {
			l.checkIDs()
			if l.highest.Load() < was+100_000 {
				return false
			}
			used := 0
			for _, b := range askBuffers(t, nc, "order", len(f.generators)) {
				if b.Taken > 0 {
					used++
				}
			}
			return used == len(f.generators)
		})
		f.retire()
		must(t, p.servers[1-p.primary].Run())
		p.replicate()
		l.checkIDs()
		now, text := l.unanswered()
		t.Logf("round %d: the new primary lacked %d IDs; %d IDs in %d replies, %d refusals; longest time without an answer with a deadline of %v: %v",
			round+1, was-is, l.ids.Load()-ids, l.replies.Load()-replies, now-refused, probeDeadline, time.Duration(hasty.longest.Load()).Round(time.Millisecond))
		if now > refused {
			t.Errorf("callers were refused: %s", text)
		}
	}
	hasty.stop()
	l.stop()
	l.agrees(url)
	count, _ := hasty.unanswered()
	t.Logf("%d of %d calls with a deadline of %v got no ID", count, count+hasty.replies.Load(), probeDeadline)
}
