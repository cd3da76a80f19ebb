package kit

import (
	"context"
	"fmt"
	"net"
	"testing"
)

// Pair is a primary and a replica with asynchronous replication. Link leads to the primary. Its methods are for one
// goroutine at a time.
type Pair struct {
	Link *Link

	tb       testing.TB
	database string
	servers  [2]*MariaDB
	primary  int // the index of the server that is the primary now
	id       int // the server ID that was given last
}

// NewPair starts both servers, with an empty database, until the test ends.
func NewPair(tb testing.TB, database string) *Pair {
	tb.Helper()
	p := &Pair{tb: tb, database: database}
	for i := range p.servers {
		p.id++
		p.servers[i] = NewMariaDB(tb, "--log-bin=binlog", "--log-slave-updates", fmt.Sprint("--server-id=", p.id))
	}
	SQL(tb, p.Primary().DSN(""), "CREATE DATABASE "+database)
	p.Link = NewLink(tb, p.Primary().Addr())
	p.Replicate()
	return p
}

// Primary is the server that is the primary now.
func (p *Pair) Primary() *MariaDB { return p.servers[p.primary] }

// Replica is the other server.
func (p *Pair) Replica() *MariaDB { return p.servers[1-p.primary] }

// DSN leads to the database of the primary, through the link.
func (p *Pair) DSN() string { return fmt.Sprintf("root@tcp(%s)/%s", p.Link.Addr(), p.database) }

// Replicate starts the other server if it has ended, and makes it a replica. The replica loses all that it has, and
// copies the primary from the beginning. Replicate returns when the replica has what the primary has now.
func (p *Pair) Replicate() {
	p.tb.Helper()
	primary, replica := p.Primary(), p.Replica()
	p.id++ // a replica ignores what it wrote itself as a primary, by this number
	if replica.Ended() {
		Must(p.tb, replica.Run())
	}
	host, port, err := net.SplitHostPort(primary.Addr())
	Must(p.tb, err)
	SQL(p.tb, replica.DSN(""), "STOP SLAVE", "RESET SLAVE ALL", "DROP DATABASE IF EXISTS "+p.database, "RESET MASTER",
		fmt.Sprint("SET GLOBAL server_id = ", p.id), "SET GLOBAL gtid_slave_pos = ''",
		fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='root', MASTER_USE_GTID=slave_pos, "+
			"MASTER_CONNECT_RETRY=1", host, port), // by default it notices only after a minute that a primary is back
		"START SLAVE")
	var position string
	Must(p.tb, query(primary.DSN(""), "SELECT @@gtid_binlog_pos", &position))
	if err := query(replica.DSN(""), "SELECT MASTER_GTID_WAIT('"+position+"')", new(int)); err != nil {
		p.tb.Fatalf("the replica does not reach %s; SHOW SLAVE STATUS says why: %v", position, err)
	}
}

// Lag makes the replica stand still, so that it falls behind. It goes on after Lag(false), or when it is restarted.
func (p *Pair) Lag(on bool) {
	p.tb.Helper()
	verb := "START"
	if on {
		verb = "STOP"
	}
	SQL(p.tb, p.Replica().DSN(""), verb+" SLAVE SQL_THREAD")
}

// Split ends the replication. From then on the replica is a second primary, for links that lead to it. Before
// [Pair.Replicate], lead them to the primary.
func (p *Pair) Split() {
	p.tb.Helper()
	SQL(p.tb, p.Replica().DSN(""), "STOP SLAVE", "RESET SLAVE ALL")
}

// FailOver kills the primary unless it has ended, makes the replica the primary, and leads the link to it. What the
// replica did not have yet is lost.
func (p *Pair) FailOver() {
	p.tb.Helper()
	Must(p.tb, p.Primary().Close())
	p.Split()
	p.primary = 1 - p.primary
	p.Link.Lead(p.Primary().Addr())
}

// query reads one value.
func query(dsn, statement string, value any) error {
	db, err := openMySQL(dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	return db.QueryRowContext(ctx, statement).Scan(value)
}
