package tests

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/mariadb"
	"github.com/leafbus/leafbus/tests/proxy"
)

// openDB opens a database for plain SQL, as an operator would.
func openDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	cfg := parseDSN(t, dsn)
	cfg.Logger = &mysql.NopLogger{} // connections break on purpose
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}

func parseDSN(t *testing.T, dsn string) *mysql.Config {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// through is the DSN of a database when it is reached at another address.
func through(t *testing.T, dsn, address string) string {
	t.Helper()
	cfg := parseDSN(t, dsn)
	cfg.Addr = address
	return cfg.FormatDSN()
}

func execute(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, s := range statements {
		if _, err := db.ExecContext(ctx, s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// maxIDOf is a tag's max_id as the table has it.
func maxIDOf(t *testing.T, db *sql.DB, tag string) (maxID int64) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT max_id FROM leaf_alloc WHERE biz_tag = ?", tag).Scan(&maxID); err != nil {
		t.Fatalf("max_id of %s: %v", tag, err)
	}
	return maxID
}

// definition is what the server says a table is.
func definition(t *testing.T, db *sql.DB, table string) (text string) {
	t.Helper()
	var name string
	if err := db.QueryRowContext(t.Context(), "SHOW CREATE TABLE "+table).Scan(&name, &text); err != nil {
		t.Fatal(err)
	}
	return text
}

func tablesOf(t *testing.T, db *sql.DB) (names []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SHOW TABLES")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// newServer starts a MariaDB of the test's own, with an empty database.
func newServer(t *testing.T) (s *mariadb.Server, dsn string) {
	t.Helper()
	s = mariadb.New(t)
	dsn, err := s.Database()
	if err != nil {
		t.Fatal(err)
	}
	return s, dsn
}

// newProxy is in front of the server of a database. It returns the DSN that
// leads through it.
func newProxy(t *testing.T, dsn string) (p *proxy.Proxy, there string) {
	t.Helper()
	p, err := proxy.Start(parseDSN(t, dsn).Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, through(t, dsn, p.Addr())
}

// must fails the test where something of the test's own failed.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// relay is an address behind which there is one server, then another, or none.
type relay struct {
	t    *testing.T
	addr string

	mu       sync.Mutex
	listener net.Listener // nil: the port is closed
	conns    []net.Conn   // of both sides
}

// newRelay returns a relay whose port is closed.
func newRelay(t *testing.T) *relay {
	t.Helper()
	for range 50 {
		// Below the ports that systems hand out to whoever wants any: it must
		// still be free when it is opened again.
		r := &relay{t: t, addr: fmt.Sprintf("127.0.0.1:%d", 10240+rand.IntN(20000))}
		if l, err := net.Listen("tcp", r.addr); err == nil {
			l.Close()
			t.Cleanup(r.close)
			return r
		}
	}
	t.Fatal("no port is free")
	return nil
}

// close closes the port and all connections.
func (r *relay) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != nil {
		r.listener.Close()
		r.listener = nil
	}
	for _, c := range r.conns {
		c.Close()
	}
	r.conns = nil
}

// lead closes all connections, and leads new ones to the server at target.
func (r *relay) lead(target string) {
	r.t.Helper()
	r.close()
	l, err := net.Listen("tcp", r.addr)
	must(r.t, err)
	r.mu.Lock()
	r.listener = l
	r.mu.Unlock()
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go r.join(l, client, target)
		}
	}()
}

func (r *relay) join(l net.Listener, client net.Conn, target string) {
	server, err := net.Dial("tcp", target)
	if err != nil {
		client.Close()
		return
	}
	r.mu.Lock()
	if r.listener != l { // it was closed meanwhile
		r.mu.Unlock()
		client.Close()
		server.Close()
		return
	}
	r.conns = append(r.conns, client, server)
	r.mu.Unlock()
	for from, to := range map[net.Conn]net.Conn{client: server, server: client} {
		go func() {
			_, _ = io.Copy(to, from) // however it ends, the connection is over
			client.Close()
			server.Close()
		}()
	}
}

// stateOf is the state of the one generator that is there.
func stateOf(t *testing.T, c *bus.Client) bus.State {
	t.Helper()
	return states(t, c, 1)[0]
}

// lacks reports whether a generator says that something is missing, with a
// reason that has this text.
func lacks(s bus.State, what, text string) bool {
	return !s.Ready && slices.Contains(s.Missing, what) && strings.Contains(s.Reasons[what], text)
}

// countEvents returns how many events the stream has on a subject, by node.
func countEvents(t *testing.T, nc *nats.Conn, subject string) map[string]int {
	t.Helper()
	found := make(map[string]int)
	for _, e := range allEvents[map[string]any](t, jetStream(t, nc), subject) {
		found[fmt.Sprint(e["node"])]++
	}
	return found
}

// within bounds the wait for an answer that must come by itself.
func within(t *testing.T, nc *nats.Conn, most time.Duration, subject, body string) *nats.Msg {
	t.Helper()
	msg, err := nc.Request(subject, []byte(body), most)
	if err != nil {
		t.Fatalf("request on %q: no answer in %v: %v", subject, most, err)
	}
	return msg
}

// leafScripts are tables as Leaf's script and as its article make them: with a
// collation for which letters' case does not count.
var leafScripts = map[string]string{
	"description": "CREATE TABLE `leaf_alloc` (\n" +
		"  `biz_tag` varchar(128)  NOT NULL DEFAULT '',\n" +
		"  `max_id` bigint(20) NOT NULL DEFAULT '1',\n" +
		"  `step` int(11) NOT NULL,\n" +
		"  `description` varchar(256)  DEFAULT NULL,\n" +
		"  `update_time` timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,\n" +
		"  PRIMARY KEY (`biz_tag`)\n" +
		") ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci",
	"desc": "CREATE TABLE `leaf_alloc` (\n" +
		"  `biz_tag` varchar(128) NOT NULL DEFAULT '',\n" +
		"  `max_id` bigint(20) NOT NULL DEFAULT '1',\n" +
		"  `step` int(11) NOT NULL,\n" +
		"  `desc` varchar(256) DEFAULT NULL,\n" +
		"  `update_time` timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,\n" +
		"  PRIMARY KEY (`biz_tag`)\n" +
		") ENGINE=InnoDB DEFAULT CHARSET=utf8 COLLATE=utf8_general_ci",
}

// A table that Leaf filled is taken over as it is: each tag goes on exactly
// where its row stands, and nobody alters the table.
func TestTableOfLeafIsTakenOver(t *testing.T) {
	t.Parallel()
	for column, script := range leafScripts {
		t.Run(column, func(t *testing.T) {
			t.Parallel()
			dsn := mariadb.NewDatabase(t)
			db := openDB(t, dsn)
			execute(t, db, script, "INSERT INTO leaf_alloc (biz_tag, max_id, step, `"+column+"`) VALUES "+
				"('leaf-segment-test', 1, 2000, 'Test leaf Segment Mode Get Id'), ('Shop.Order', 9007199254740993, 2000, NULL), ('coupon', 77, 3, ''), ('fresh', 0, 10, NULL)")
			before := definition(t, db, "leaf_alloc")
			g := embed(t, "--mysql", dsn)
			nc := connect(t, g.url)
			for tag, want := range map[string]string{
				"leaf-segment-test": "1-5", "Shop.Order": "9007199254740993-9007199254740997", "coupon": "77-81", "fresh": "1-5",
			} {
				msg := ask(t, nc, "leaf.segment."+tag, "5")
				granted(t, msg)
				if got := string(msg.Data); got != want {
					t.Errorf("%s begins with %s, want %s", tag, got, want)
				}
			}
			// Leaf's cache minds letters' case, and so do requests.
			for _, tag := range []string{"shop.order", "SHOP.ORDER", "Coupon"} {
				refused(t, ask(t, nc, "leaf.segment."+tag, ""), 404, bus.UnknownTag)
			}
			if list := leafOK(t, "tag", "list", "-s", g.url); !strings.Contains(list, "Test leaf Segment Mode Get Id") {
				t.Errorf("the description is not in the list:\n%s", list)
			}
			leafOK(t, "tag", "set", "coupon", "--description", "10 % off", "--step", "30", "-s", g.url)
			leaf(t, "tag", "add", "COUPON", "-s", g.url).want(t, 1, "exists", "case")
			var text string
			must(t, db.QueryRowContext(t.Context(), "SELECT `"+column+"` FROM leaf_alloc WHERE biz_tag = 'coupon'").Scan(&text))
			if text != "10 % off" {
				t.Errorf("the column %s says %q", column, text)
			}
			g.stop()

			// What is in memory when a generator stops is a gap, and no more than that.
			maxID := maxIDOf(t, db, "Shop.Order")
			g = g.again(t, "--mysql", dsn)
			if id := takeOne(t, client(t, g.url), "Shop.Order"); id != maxID {
				t.Errorf("after a restart the next ID is %d, max_id was %d", id, maxID)
			}
			g.stop()
			if after := definition(t, db, "leaf_alloc"); after != before {
				t.Errorf("the table was\n%s\nand is\n%s", before, after)
			}
			if got := tablesOf(t, db); !slices.Equal(got, []string{"leaf_alloc", "leaf_installation", "leaf_mark"}) {
				t.Errorf("the tables are %v", got)
			}
		})
	}
}
