package tests

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
	"github.com/leafbus/leafbus/tests/proxy"
)

// What tests of other files still use. It goes with them.

// evidence is where an audit of an installation reads. url leads to its NATS.
func evidence(t *testing.T, url string) audit.Source {
	t.Helper()
	nc := connect(t, url)
	return audit.FromClient(bus.NewClient(nc, bus.Timeout(patience)), jetStream(t, nc))
}

// runAudit audits an installation. A cluster that was just restarted may have no leader yet: then the audit is an error.
func runAudit(t *testing.T, url string, o audit.Options) *audit.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	from := evidence(t, url)
	var report *audit.Report
	testkit.Eventually(t, "an audit that can read everything", func() (read bool) {
		var err error
		if report, err = audit.Run(ctx, from, o); err != nil {
			t.Log(err)
		}
		return err == nil
	})
	return report
}

// auditAgrees audits an installation, and compares it with the IDs that callers took. It fails the test with each
// contradiction of a kind that is not expected, and if the report's numbers do not add up.
func auditAgrees(t *testing.T, url string, o audit.Options, expected ...bus.ContradictionKind) *audit.Report {
	t.Helper()
	report := runAudit(t, url, o)
	for _, c := range report.Contradictions {
		if !slices.Contains(expected, c.Kind) {
			t.Errorf("the audit finds a contradiction: %s: %s", c.Kind, c.Message)
		}
	}
	addsUp(t, report)
	if report.Events == 0 {
		t.Error("the audit read no event")
	}
	for _, r := range []*audit.TakenReport{report.Taken, report.TakenSnowflakes} {
		if r != nil && (r.IDs == 0 || r.Repeated > 0 || r.Unclaimed > 0) {
			t.Errorf("of %d IDs that were taken, %d were taken again, and %d never claimed", r.IDs, r.Repeated, r.Unclaimed)
		}
	}
	return report
}

// addsUp checks the numbers of a report without contradictions: each ID of a tag from the lowest in an event up to the
// end of all claims is counted once.
func addsUp(t *testing.T, report *audit.Report) {
	t.Helper()
	if len(report.Tags) == 0 {
		t.Error("the audit knows no tag")
	}
	var events, possible int64
	for _, a := range report.Tags {
		events += a.Events
		possible += a.Lost + a.Unreported + int64(a.From)
		if a.Events == 0 {
			continue
		}
		if sum := a.Reported + a.Lost + a.Skipped + a.Unreported; sum != int64(a.End-a.From) {
			t.Errorf("%s: %d reported + %d lost + %d skipped + %d unreported are %d IDs, and from %d up to the end %d are %d",
				a.Tag, a.Reported, a.Lost, a.Skipped, a.Unreported, sum, a.From, a.End, a.End-a.From)
		}
		var shares bus.Share
		for _, s := range a.Shares {
			shares.Refills, shares.IDs = shares.Refills+s.Refills, shares.IDs+s.IDs
		}
		if shares.Refills != a.Events || shares.IDs < a.Reported { // an event may be in the stream twice
			t.Errorf("%s: the generators' shares are %d refills of %d IDs, and %d events report %d", a.Tag, shares.Refills, shares.IDs, a.Events, a.Reported)
		}
	}
	if events > report.Events {
		t.Errorf("tags have %d events, of %d that were read", events, report.Events)
	}
	if r := report.Taken; r != nil && r.Unreported > possible && !slices.ContainsFunc(report.Tags, func(a bus.TagAudit) bool { return a.Events == 0 }) {
		t.Errorf("%d IDs that were taken are in no event, and at most %d can be", r.Unreported, possible)
	}
}

// agrees compares what a load took, which has ended, with an audit.
func (l *load) agrees(url string, expected ...bus.ContradictionKind) *audit.Report {
	l.t.Helper()
	o := audit.Options{Taken: &l.taken}
	if l.cfg.tag == "" {
		o = audit.Options{TakenSnowflakes: &l.flakes}
	}
	report := auditAgrees(l.t, url, o, expected...)
	if taken := cmp.Or(report.Taken, report.TakenSnowflakes); taken.IDs != l.ids.Load() {
		l.t.Errorf("the audit knows %d IDs that were taken, and callers took %d", taken.IDs, l.ids.Load())
	}
	return report
}

// auditSite is an installation that is audited.
type auditSite struct {
	t     *testing.T
	url   string
	dsn   string // empty: the tags are in JetStream
	nc    *nats.Conn
	js    jetstream.JetStream
	nodes map[string]*generator
}

// eachAudited runs a test for tags in MySQL and for tags in JetStream, or only for one of them, with these generators.
func eachAudited(t *testing.T, only string, nodes []string, args []string, f func(t *testing.T, a *auditSite)) {
	for _, store := range []string{"mysql", "kv"} {
		if only != "" && store != only {
			continue
		}
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			a := &auditSite{t: t, url: newNATS(t).ClientURL(), nodes: make(map[string]*generator)}
			a.nc = connect(t, a.url)
			a.js = jetStream(t, a.nc)
			args := append([]string{"-s", a.url}, args...)
			if store == "mysql" {
				a.dsn = mariadb.NewDatabase(t)
				args = append(args, "--mysql", a.dsn)
			}
			for _, node := range nodes {
				a.nodes[node] = serve(t, t.TempDir(), append(args, "--node", node)...)
			}
			f(t, a)
		})
	}
}

// audit audits these tags, or all.
func (a *auditSite) audit(taken *audit.Taken, tags ...string) *audit.Report {
	a.t.Helper()
	c := bus.NewClient(a.nc)
	source := audit.Source{JS: a.js, Claims: c.Claims, Workers: c.Workers, States: c.States}
	report, err := audit.Run(testkit.Context(a.t), source, audit.Options{Tags: tags, Taken: taken})
	must(a.t, err)
	return report
}

// record is where a tag's record is that says how far it is claimed.
func (a *auditSite) record(tag string) (bucket jetstream.KeyValue, key string) {
	a.t.Helper()
	name, key := bus.BucketTags, tag
	if a.dsn != "" {
		name, key = bus.BucketLedger, "tag."+tag
	}
	bucket, err := a.js.KeyValue(a.t.Context(), name)
	must(a.t, err)
	return bucket, key
}

// keep returns a function that puts the tag's record back as it is now.
func (a *auditSite) keep(tag string) (putBack func()) {
	a.t.Helper()
	bucket, key := a.record(tag)
	entry, err := bucket.Get(a.t.Context(), key)
	must(a.t, err)
	return func() { a.put(tag, string(entry.Value())) }
}

func (a *auditSite) put(tag, record string) {
	a.t.Helper()
	bucket, key := a.record(tag)
	_, err := bucket.PutString(a.t.Context(), key, record)
	must(a.t, err)
}

// end is how far the tag order is claimed.
func (a *auditSite) end() int64 {
	a.t.Helper()
	page, err := bus.NewClient(a.nc).Claims(a.t.Context(), bus.ClaimsRequest{Tags: []string{"order"}})
	must(a.t, err)
	return int64(page.Claims[0].End)
}

// take takes IDs of the tag order, and waits until events report all that is claimed.
func (a *auditSite) take(count int64) {
	a.t.Helper()
	_, err := bus.NewClient(a.nc).Take(a.t.Context(), "order", count)
	must(a.t, err)
	testkit.Eventually(a.t, "events of all claims", func() bool {
		found := a.audit(nil, "order").Tags[0]
		return found.Unreported == 0 && found.Reported > 0
	})
}

func (a *auditSite) event(tag, body string) {
	a.t.Helper()
	msg := nats.NewMsg("leaf.events.info.segment.refill." + tag)
	for name, value := range map[string]string{
		"ce-specversion": "1.0", "ce-id": nats.NewInbox(), "ce-source": "/leaf/x", "ce-type": "leaf.segment.refill",
		"ce-subject": tag, "ce-time": time.Now().UTC().Format(time.RFC3339Nano), "ce-datacontenttype": "application/json",
	} {
		msg.Header[name] = []string{value}
	}
	msg.Data = []byte(body)
	_, err := a.js.PublishMsg(a.t.Context(), msg)
	must(a.t, err)
}

var auditedArgs = []string{"--tag", "order:100", "--tag", "other:100", "--max-step", "100"}

// auditOf audits all tags and workers, and what was taken if that is not nil.
func auditOf(t *testing.T, nc *nats.Conn, taken *audit.Runs) *audit.Report {
	t.Helper()
	c := bus.NewClient(nc)
	report, err := audit.Run(t.Context(), audit.Source{JS: jetStream(t, nc), Claims: c.Claims, Workers: c.Workers, States: c.States},
		audit.Options{TakenSnowflakes: taken})
	must(t, err)
	return report
}

// clean demands that an audit finds no contradiction.
func clean(t *testing.T, what string, r *audit.Report) {
	t.Helper()
	if len(r.Contradictions) > 0 {
		t.Errorf("%s: %+v", what, r.Contradictions)
	}
}

// takeOne returns one ID, which must come.
func takeOne(t *testing.T, c *bus.Client, tag string) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ranges, err := c.Take(ctx, tag, 1)
	if err != nil {
		t.Fatalf("an ID of %s: %v", tag, err)
	}
	return ranges[0].First
}

// nodeEvent is the body of the events of start and stop.
type nodeEvent struct {
	Node, Version, Address string
	Config                 map[string]string
}

// refusesNew waits until a generator that is alone refuses new requests because it stops.
func refusesNew(t *testing.T, nc *nats.Conn) {
	t.Helper()
	testkit.Eventually(t, "the generator to refuse new requests", func() bool {
		msg, err := nc.Request("leaf.segment.order", nil, 100*time.Millisecond)
		return err == nil && strings.Contains(string(msg.Data), `{"code":503,"reason":"draining"`)
	})
}

// regression is the body of the alert that the database went backwards.
type regression struct {
	Node, Tag, Store, Action string
	Got, Seen, First, Last   bus.ID
}

// noticed waits until generators published that they raised the number of a tag.
func noticed(t *testing.T, nc *nats.Conn, tag string) {
	t.Helper()
	js := jetStream(t, nc)
	testkit.Eventually(t, "an alert that the number of "+tag+" was raised", func() bool {
		if _, err := js.Stream(t.Context(), bus.EventStream); err != nil {
			return false // an election is under way
		}
		for _, a := range allEvents[regression](t, js, "leaf.events.alert.segment.regressed."+tag) {
			if a.Action == "advanced" && a.Got < a.Seen {
				return true
			}
		}
		return false
	})
}

// ahead waits until IDs come that are so far above the highest one.
func ahead(t *testing.T, l *load, by int64) {
	t.Helper()
	until := l.highest.Load() + by
	testkit.Eventually(t, "higher IDs", func() bool {
		l.checkIDs()
		return l.highest.Load() > until
	})
}

// wait lets some time pass, so that a process is stopped anywhere in what it does.
func (l *ledgered) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.t.Context().Done():
	}
}

// ledgered is an installation whose tags are in MySQL, as tests of the ledger need it.
type ledgered struct {
	t   *testing.T
	dsn string
	db  *sql.DB
	nc  *nats.Conn
	js  jetstream.JetStream
	url string
}

// join starts generators.
func (l *ledgered) join(nodes []string, args ...string) map[string]*generator {
	l.t.Helper()
	return join(l.t, l.url, l.dsn, nodes, args...)
}

// end is how far a tag is claimed, as its record says; 0: it has none.
func (l *ledgered) end(tag string) int64 {
	l.t.Helper()
	return claimedEnd(l.t, l.js, tag)
}

func claimedEnd(t *testing.T, js jetstream.JetStream, tag string) int64 {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), bus.BucketLedger)
	must(t, err)
	entry, err := kv.Get(t.Context(), "tag."+tag)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0
	}
	must(t, err)
	var record struct {
		End string `json:"end"`
	}
	must(t, json.Unmarshal(entry.Value(), &record))
	end, err := strconv.ParseInt(record.End, 10, 64)
	must(t, err)
	return end
}

// take returns an ID of a tag, which must be at least from.
func (l *ledgered) take(tag string, from int64) int64 {
	l.t.Helper()
	id := takeOne(l.t, bus.NewClient(l.nc), tag)
	if id < from {
		l.t.Errorf("ID %d of %s was handed out again: all below %d are in use", id, tag, from)
	}
	return id
}

// report ends the load and logs what its callers noticed.
func (l *load) report() {
	l.t.Helper()
	l.stop()
	_, text := l.unanswered()
	l.t.Log(text)
}

// before makes an installation what the version before the ledger left: no bucket, and a record that does not
// name it. Everything that knows how far a tag was knows it of one tag alone. It returns those ends.
func (l *ledgered) before(g *generator) (ends map[string]int64) {
	l.t.Helper()
	ends = map[string]int64{"idle": 5001, "deleted": 7001, "moved": 9001, "event": 12_001, "seen": 15_001, "marked": 20_001}
	for _, tag := range []string{"idle", "moved", "event", "seen", "marked", "fresh"} {
		execute(l.t, l.db, fmt.Sprintf("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('%s', 1, 100)", tag))
	}
	execute(l.t, l.db, "UPDATE leaf_alloc SET max_id = 5001 WHERE biz_tag = 'idle'",
		"INSERT INTO leaf_mark (biz_tag, max_id) VALUES ('deleted', 7001)",
		"INSERT INTO leaf_mark (biz_tag, floor) VALUES ('moved', 9001)")
	l.event("event", 12_000, "")
	l.event("seen", 13_000, "15001")
	marks, err := allocator.OpenMarks(filepath.Join(g.folder, "marks"))
	must(l.t, err)
	must(l.t, marks.Record("marked", 20_001))
	must(l.t, marks.Close())

	must(l.t, l.js.DeleteKeyValue(l.t.Context(), bus.BucketLedger))
	kv, err := l.js.KeyValue(l.t.Context(), bus.BucketInstallation)
	must(l.t, err)
	entry, err := kv.Get(l.t.Context(), "installation")
	must(l.t, err)
	var record map[string]any
	must(l.t, json.Unmarshal(entry.Value(), &record))
	delete(record, "ledger")
	text, err := json.Marshal(record)
	must(l.t, err)
	_, err = kv.Put(l.t.Context(), "installation", text)
	must(l.t, err)
	return ends
}

// event publishes a refill event as older generators did.
func (l *ledgered) event(tag string, last int64, seen string) {
	l.t.Helper()
	subject := "leaf.events.info.segment.refill." + tag
	msg := nats.NewMsg(subject)
	msg.Data = fmt.Appendf(nil, `{"node":"old","tag":%q,"first":"%d","last":"%d","step":100,"cause":"demand","elapsed_ms":1}`, tag, last-99, last)
	if seen != "" {
		msg.Header.Set("Leaf-Seen", seen)
	}
	_, err := l.js.PublishMsg(l.t.Context(), msg)
	must(l.t, err)
}

// older is heard as a generator of a version that claims nothing, until the returned function is called.
func (l *ledgered) older(node string) (stop func()) {
	l.t.Helper()
	installation := ownerOfDatabase(l.t, l.dsn)
	pings, err := l.nc.Subscribe("$SRV.PING.leaf", func(msg *nats.Msg) {
		_ = msg.Respond(fmt.Appendf(nil, `{"name":"leaf","id":"p","version":"0.0.1","metadata":{"node":%q}}`, node))
	})
	must(l.t, err)
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		again := time.NewTicker(100 * time.Millisecond)
		defer again.Stop()
		for n := 1; ; n++ {
			_ = l.nc.Publish("leaf.internal.presence", fmt.Appendf(nil, // a lost one is followed by others
				`{"node":%q,"id":"run-of-%s","segment":false,"snowflake":false,"unix_ms":%d,"number":%d,"installation":%q}`,
				node, node, time.Now().UnixMilli(), n, installation))
			select {
			case <-ended:
				return
			case <-again.C:
			}
		}
	}()
	stop = func() {
		must(l.t, pings.Unsubscribe())
		close(ended)
		<-done
	}
	l.t.Cleanup(func() {
		select {
		case <-ended:
		default:
			stop()
		}
	})
	return stop
}

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

// copyTables makes the tables of a database those of another.
func copyTables(t *testing.T, from, to *sql.DB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, table := range tablesOf(t, from) {
		execute(t, to, "DROP TABLE IF EXISTS "+table, definition(t, from, table))
		rows, err := from.QueryContext(ctx, "SELECT * FROM "+table)
		must(t, err)
		defer rows.Close()
		columns, err := rows.Columns()
		must(t, err)
		for rows.Next() {
			values, places := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				places[i] = &values[i]
			}
			must(t, rows.Scan(places...))
			_, err := to.ExecContext(ctx, "INSERT INTO "+table+" VALUES (?"+strings.Repeat(", ?", len(columns)-1)+")", values...)
			must(t, err)
		}
		must(t, rows.Err())
	}
}

// join starts generators that share a NATS and a database.
func join(t *testing.T, url, dsn string, nodes []string, args ...string) map[string]*generator {
	t.Helper()
	found := make(map[string]*generator)
	for _, node := range nodes {
		found[node] = serve(t, t.TempDir(), append([]string{"-s", url, "--mysql", dsn, "--node", node}, args...)...)
	}
	return found
}

// filled asks for IDs until each of the generators has two segments of a tag.
func filled(t *testing.T, nc *nats.Conn, tag string, nodes int, batch string) {
	t.Helper()
	testkit.Eventually(t, "two segments of "+tag+" at each generator", func() bool {
		granted(t, ask(t, nc, "leaf.segment."+tag, batch))
		full := 0
		for _, b := range askBuffers(t, nc, tag, nodes) {
			if len(b.Segments) == 2 {
				full++
			}
		}
		return full == nodes
	})
}

type refillFailed struct {
	Node, Tag, Error string
	Left             int64
}

// threeServers is a cluster of NATS servers in the test's process. Each route goes through a proxy.
type threeServers struct {
	t       *testing.T
	servers [3]*natsServer
	routes  [3][3]*proxy.Proxy // from, to
}

func newThreeServers(t *testing.T) *threeServers {
	t.Helper()
	c := &threeServers{t: t}
	var listen [3]string
	for i := range listen {
		listen[i] = testkit.FreeAddress(t)
	}
	for i := range c.routes {
		var urls []string
		for j := range c.routes {
			if i == j {
				continue
			}
			p, err := proxy.Start(listen[j])
			must(t, err)
			t.Cleanup(p.Close)
			c.routes[i][j] = p
			urls = append(urls, fmt.Sprintf("%q", "nats://"+p.Addr()))
		}
		conf := filepath.Join(t.TempDir(), "nats.conf")
		// What servers gossip about each other leads nowhere: no route may go around its proxy.
		writeFile(t, conf, fmt.Sprintf("server_name: s%d\ncluster { name: c, listen: %q, advertise: \"127.0.0.1:1\", routes: [%s] }\n",
			i, listen[i], strings.Join(urls, ", ")))
		c.servers[i] = newNATSFrom(t, conf)
	}
	for i := range c.servers {
		c.awaitHealth(i)
	}
	return c
}

func (c *threeServers) url(i int) string { return c.servers[i].ClientURL() }

// cut closes all routes of a server, until heal.
func (c *threeServers) cut(i int) { c.refuse(i, true) }

func (c *threeServers) refuse(i int, on bool) {
	for j := range c.servers {
		if j != i {
			c.routes[i][j].Refuse(on)
			c.routes[j][i].Refuse(on)
		}
	}
}

func (c *threeServers) awaitHealth(i int) {
	c.t.Helper()
	testkit.Eventually(c.t, fmt.Sprintf("health of server s%d", i), func() bool { return c.servers[i].Health() == nil })
}

// silence lets no question about the workers reach ZooKeeper, and sees whether a
// generator reports while the answer to one is owed.
type silence struct {
	mu       sync.Mutex
	owed     bool // an answer
	reported bool
}

// seen says whether the generator has reported.
func (s *silence) seen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reported
}

// buffersOf returns what each generator holds of a tag, by node, when so many
// have answered.
func buffersOf(t *testing.T, nc *nats.Conn, tag string, nodes int) map[string]bus.Buffer {
	t.Helper()
	var found map[string]bus.Buffer
	testkit.Eventually(t, "the buffers of all generators", func() bool {
		found = askBuffers(t, nc, tag, nodes)
		return len(found) == nodes
	})
	return found
}

// askBuffers asks once: who is not connected just then does not answer.
func askBuffers(t *testing.T, nc *nats.Conn, tag string, nodes int) map[string]bus.Buffer {
	t.Helper()
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	defer answers.Unsubscribe()
	if err := nc.PublishRequest(bus.SubjectBuffers, inbox, []byte(`{"prefix":"`+tag+`"}`)); err != nil {
		t.Fatal(err)
	}
	found := make(map[string]bus.Buffer)
	for range nodes {
		msg, err := answers.NextMsg(time.Second)
		if errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		page := reply[bus.BuffersPage](t, msg)
		for _, b := range page.Buffers {
			if b.Tag == tag {
				found[page.Node] = b
			}
		}
	}
	return found
}

// lastEvent waits for an event and returns the body of the last one on its
// subject.
func lastEvent[T any](t *testing.T, js jetstream.JetStream, subject string) T {
	t.Helper()
	var body []byte
	testkit.Eventually(t, "an event on "+subject, func() bool {
		stream, err := js.Stream(t.Context(), bus.EventStream)
		if err != nil {
			return false
		}
		msg, err := stream.GetLastMsgForSubject(t.Context(), subject)
		if err != nil {
			return false
		}
		body = msg.Data
		return true
	})
	return parse[T](t, body)
}

// eventConsumer reads the events on a subject from the first on. The stream is
// made after the generator is ready: events never hold it up.
func eventConsumer(t *testing.T, js jetstream.JetStream, subject string) (consumer jetstream.Consumer) {
	t.Helper()
	testkit.Eventually(t, "the event stream", func() bool {
		var err error
		consumer, err = js.OrderedConsumer(t.Context(), bus.EventStream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Fatal(err)
		}
		return err == nil
	})
	return consumer
}

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

// breakStore makes the server refuse every write to the tags, or no longer.
func breakStore(t *testing.T, js jetstream.JetStream, broken bool) {
	t.Helper()
	breakBucket(t, js, bus.BucketTags, broken)
}

func breakBucket(t *testing.T, js jetstream.JetStream, bucket string, broken bool) {
	t.Helper()
	stream, err := js.Stream(t.Context(), "KV_"+bucket)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxMsgSize = -1
	if broken {
		cfg.MaxMsgSize = 1
	}
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// strictGenerators starts a generator for each of the NATS URLs, each at an HTTP address that it keeps.
func strictGenerators(t *testing.T, urls []string, args ...string) (generators []*generator, again func(i int)) {
	t.Helper()
	all := make([][]string, len(urls))
	for i, url := range urls {
		all[i] = append([]string{"-s", url, "--http", testkit.FreeAddress(t), "--node", fmt.Sprint("n", i)}, args...)
		generators = append(generators, serve(t, t.TempDir(), all[i]...))
	}
	return generators, func(i int) {
		t.Helper()
		generators[i] = serve(t, generators[i].dir, all[i]...)
	}
}

func addressesOf(generators []*generator) (https []string) {
	for _, g := range generators {
		https = append(https, g.http)
	}
	return https
}

func addStrict(t *testing.T, url, tag string) {
	t.Helper()
	leafOK(t, "tag", "add", tag, "--order", "strict", "-s", url)
}

// Callers of a strict tag have these deadlines. The hasty ones measure the longest time without an answer.
const (
	strictDeadline = 5 * time.Second
	hastyDeadline  = 500 * time.Millisecond
)

// strictLoad is callers of all kinds that take IDs of one strict tag until they are stopped, and the history of their answers.
type strictLoad struct {
	t       *testing.T
	tag     string
	callers int // of NATS, all together
	history allocatortest.History
	answers atomic.Int64
	highest atomic.Int64
	longest atomic.Int64 // the longest time without an answer for one hasty caller, in nanoseconds; round measures its own
	worst   atomic.Int64 // the longest of all rounds

	mu    sync.Mutex
	kinds map[string]*kindOfCaller
	wrong error // the first answer or refusal that must not come

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// kindOfCaller is what the callers of one kind got.
type kindOfCaller struct{ answers, ids, failed atomic.Int64 }

// never are refusals that a tag that is there never gives to a valid request.
var never = []bus.Reason{
	bus.BadRequest, bus.BadTag, bus.UnknownTag, bus.Conflict, bus.BatchTooLarge, bus.Internal, bus.StoreRegressed, bus.Exhausted,
}

// end stops the callers.
func (l *strictLoad) end() {
	l.cancel()
	l.wg.Wait()
}

// stop stops the callers, checks the history, and prints what came. Each kind must have got IDs.
func (l *strictLoad) stop() {
	l.t.Helper()
	l.end()
	l.check()
	for _, name := range slices.Sorted(maps.Keys(l.kinds)) {
		k := l.kinds[name]
		l.t.Logf("%-10s %8d answers, %9d IDs, %5d calls failed", name, k.answers.Load(), k.ids.Load(), k.failed.Load())
		if k.answers.Load() == 0 {
			l.t.Errorf("%s: no answer ever came", name)
		}
	}
	raise(&l.worst, l.longest.Load())
	l.t.Logf("%d callers of NATS, %d answers with %d IDs in order, none twice; longest time without an answer for a caller with a deadline of %v: %v",
		l.callers, l.answers.Load(), l.history.IDs(), hastyDeadline, time.Duration(l.worst.Load()).Round(time.Millisecond))
}

// check fails the test at once if an answer was wrong, or IDs were out of order.
func (l *strictLoad) check() {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wrong != nil {
		l.t.Fatal(l.wrong)
	}
	if _, err := l.history.Check(); err != nil {
		l.t.Fatal(err)
	}
}

// more waits for so many further answers.
func (l *strictLoad) more(answers int64) {
	l.t.Helper()
	until := l.answers.Load() + answers
	testkit.Eventually(l.t, fmt.Sprint(answers, " answers"), func() bool { return l.answers.Load() >= until })
}

// all waits until each kind of caller has got a further answer.
func (l *strictLoad) all() {
	l.t.Helper()
	before := make(map[string]int64)
	l.mu.Lock()
	kinds := maps.Clone(l.kinds)
	l.mu.Unlock()
	for name, k := range kinds {
		before[name] = k.answers.Load()
	}
	for name, k := range kinds {
		testkit.Eventually(l.t, "an answer to "+name, func() bool { return k.answers.Load() > before[name] })
	}
}

func (l *strictLoad) kind(name string) *kindOfCaller {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kinds[name] == nil {
		l.kinds[name] = &kindOfCaller{}
	}
	return l.kinds[name]
}

// fail keeps the first answer or refusal that must not come.
func (l *strictLoad) fail(name string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wrong == nil {
		l.wrong = fmt.Errorf("%s: %w", name, err)
	}
}

// record takes in an answer.
func (l *strictLoad) record(k *kindOfCaller, call time.Time, ranges ...bus.Range) {
	l.history.Add(call, time.Now(), ranges...)
	for _, r := range ranges {
		k.ids.Add(r.Len())
		raise(&l.highest, r.Last)
	}
	k.answers.Add(1)
	l.answers.Add(1)
}

// refused takes in that a call failed.
func (l *strictLoad) refused(name string, k *kindOfCaller, err error) {
	if l.ctx.Err() != nil {
		return
	}
	k.failed.Add(1)
	for _, reason := range never {
		if errors.Is(err, reason) {
			l.fail(name, err)
		}
	}
	select { // leave the others some of the machine
	case <-time.After(5 * time.Millisecond):
	case <-l.ctx.Done():
	}
}

// repeat is one caller that makes one request after the other until the callers are stopped, each with a deadline.
func (l *strictLoad) repeat(name string, deadline time.Duration, take func(ctx context.Context) ([]bus.Range, error)) {
	k := l.kind(name)
	l.wg.Go(func() {
		for l.ctx.Err() == nil {
			ctx, cancel := context.WithTimeout(l.ctx, deadline)
			call := time.Now()
			if ranges, err := take(ctx); err == nil {
				l.record(k, call, ranges...)
			} else {
				l.refused(name, k, err)
			}
			cancel()
		}
	})
}

func (l *strictLoad) take(c *bus.Client, name string, size func() int64) {
	l.repeat(name, strictDeadline, func(ctx context.Context) ([]bus.Range, error) { return c.Take(ctx, l.tag, size()) })
}

// request asks with nothing but NATS. The answer must say that the tag is strict.
func (l *strictLoad) request(ctx context.Context, nc *nats.Conn, body string, parse func([]byte) ([]bus.Range, error)) ([]bus.Range, error) {
	msg, err := nc.RequestWithContext(ctx, bus.SubjectSegment+"."+l.tag, []byte(body))
	if err == nil {
		err = bus.ReplyError(msg)
	}
	if err != nil {
		return nil, err
	}
	if order := msg.Header.Get(bus.HeaderOrder); order != bus.OrderStrict {
		l.fail("NATS", fmt.Errorf("the header %s is %q", bus.HeaderOrder, order))
	}
	return parse(msg.Data)
}

// command runs leaf get again and again, each time with one request. One that fails wrote nothing.
func (l *strictLoad) command(url string) {
	dir := l.t.TempDir()
	l.repeat("leaf get", patience, func(ctx context.Context) ([]bus.Range, error) {
		// Not start: a command that fails is expected here, and there are many.
		cmd := command(l.t, dir, nil, []string{"get", l.tag, "-n", "100", "--ranges", "-s", url})
		out, err := cmd.Output()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && strings.Contains(string(exit.Stderr), "DATA RACE") {
			l.fail("leaf get", errors.New(string(exit.Stderr)))
		}
		if err != nil {
			return nil, err
		}
		return bus.ParseReply([]byte(strings.TrimSuffix(string(out), "\n")))
	})
}

// workersSeen are the workers whose IDs a load got.
type workersSeen struct {
	mu    sync.Mutex
	count map[int64]int
}

func (w *workersSeen) add(r bus.Range) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count == nil {
		w.count = make(map[int64]int)
	}
	w.count[partsOf(r.First).worker]++
}

// allEvents returns the bodies of the events that the stream has on a subject.
func allEvents[T any](t *testing.T, js jetstream.JetStream, subject string) (found []T) {
	t.Helper()
	stream, err := js.Stream(t.Context(), bus.EventStream)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for seq := uint64(1); ; {
		msg, err := stream.GetMsg(t.Context(), seq, jetstream.WithGetMsgSubject(subject))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return found
		case err != nil && time.Since(began) < patience: // the server may have been started again just now
			continue
		case err != nil:
			t.Fatal(err)
		}
		found = append(found, parse[T](t, msg.Data))
		seq = msg.Sequence + 1
	}
}

// request sends so many requests for three IDs each, and returns where their
// answers come.
func request(t *testing.T, nc *nats.Conn, count int) *nats.Subscription {
	t.Helper()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	for range count {
		if err := nc.PublishRequest("leaf.snowflake", inbox, []byte("3")); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return sub
}

// take takes in an answer that has IDs which may be there, or says that there is
// no worker. It returns 1 if there are IDs.
func take(t *testing.T, checker *allocatortest.Checker, msg *nats.Msg, may func(parts) bool) int {
	t.Helper()
	if len(msg.Header) > 0 {
		refused(t, msg, 503, bus.NoWorkerID)
		return 0
	}
	ranges, err := bus.ParseReply(msg.Data)
	if err != nil {
		t.Fatal(err)
	}
	checker.Add(ranges...)
	for _, r := range ranges {
		if p := partsOf(r.First); !may(p) {
			t.Errorf("answered with %+v", p)
		}
	}
	return 1
}

// record is a worker's record in the bucket LEAF_WORKERS.
type record struct {
	Node            string `json:"node"`
	ReservedUntilMS int64  `json:"reserved_until_ms"`
}

func workerRecord(t *testing.T, js jetstream.JetStream, worker int64) (r record) {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), "LEAF_WORKERS")
	if err != nil {
		t.Fatal(err)
	}
	entry, err := kv.Get(t.Context(), fmt.Sprint(worker))
	if err != nil {
		t.Fatalf("the record of worker %d: %v", worker, err)
	}
	if err := json.Unmarshal(entry.Value(), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// holders returns the nodes that run and hold a worker, by worker.
func holders(t *testing.T, c *bus.Client) map[int64]string {
	t.Helper()
	found := make(map[int64]string)
	page, err := c.Workers(t.Context(), bus.WorkersRequest{})
	if err != nil {
		t.Logf("the workers cannot be listed: %v", err) // the registry may be away
	}
	for _, w := range page.Workers {
		if w.Running {
			found[w.Worker] = w.Node
		}
	}
	return found
}

// workersOf waits until all nodes hold a worker each, and returns them by node.
func workersOf(t *testing.T, c *bus.Client, nodes ...string) map[string]int64 {
	t.Helper()
	var found map[string]int64
	testkit.Eventually(t, fmt.Sprintf("%q to hold a worker each", nodes), func() bool {
		found = make(map[string]int64)
		for worker, node := range holders(t, c) {
			found[node] = worker
		}
		return !slices.ContainsFunc(nodes, func(node string) bool { _, ok := found[node]; return !ok })
	})
	return found
}

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

type muted struct{}

// flags are those of a generator that keeps its workers there.
func (p *place) flags(more ...string) []string {
	return append([]string{"--zookeeper", p.hosts, "--zookeeper-name", p.name}, more...)
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

func (muted) Printf(string, ...any) {}
