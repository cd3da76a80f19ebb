package faults

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// setup says how an installation is built.
type setup struct {
	name      string
	nodes     int    // generators that run when the fault comes
	embedded  bool   // the first generator embeds the NATS server; else a server runs that the row can stop
	cluster   bool   // of three NATS servers, a generator at each
	mysql     bool   // the tags are in a database
	server    bool   // its server belongs to this row, which may kill it
	zookeeper bool   // the workers are there
	linked    bool   // each generator reaches NATS through a link of its own
	config    string // of the NATS server
}

var (
	kv        = setup{name: "kv", nodes: 3}
	kvAlone   = setup{name: "kv, one generator", nodes: 1}
	kvPatient = setup{name: "kv, no pings", nodes: 1, config: "ping_interval: 2m"}
	kvLinked  = setup{name: "kv, through links", nodes: 2, linked: true}
	kvEmpty   = setup{name: "kv, no generator"}
	embedded  = setup{name: "embedded", nodes: 1, embedded: true}
	cluster   = setup{name: "cluster", nodes: 3, cluster: true}
	inMySQL   = setup{name: "mysql", nodes: 3, mysql: true}
	// mysqlAlone and the others below have as few generators as the row needs: each costs a second of processor.
	mysqlAlone  = setup{name: "mysql, one generator", nodes: 1, mysql: true}
	mysqlServer = setup{name: "mysql", nodes: 2, mysql: true, server: true}
	mysqlEmpty  = setup{name: "mysql, no generator", mysql: true}
	mysqlLinked = setup{name: "mysql, through links", nodes: 1, mysql: true, linked: true}
	clusterSQL  = setup{name: "cluster, mysql", nodes: 3, cluster: true, mysql: true}
	inZooKeeper = setup{name: "zookeeper", nodes: 2, zookeeper: true}
)

// installation is a Leafbus that runs, and those who use it.
type installation struct {
	*testing.T
	setup
	random  *rand.Rand
	flags   []string // of each generator
	nats    *natsServer
	servers *natsCluster
	dsn     string      // of an operator
	ways    []*kit.Link // of each generator to the database
	paths   []*kit.Link // of each generator to NATS
	mariadb *kit.MariaDB
	db      *sql.DB
	keeper  *kit.Link // to ZooKeeper
	place   string    // the installation's name there
	url     string
	nodes   []*kit.Generator
	nc      *nats.Conn
	js      jetstream.JetStream
	asked   []string         // those whose IDs callers ask for
	callers *callers.Callers // of tags in trend order and of snowflakes
	strict  *callers.Callers
}

// Tags of every installation: one in trend order, a strict one, an opaque one, and one that nobody asks for.
const (
	order, invoice, coupon, idle = "order", "invoice", "coupon", "idle"
	snowflakes                   = callers.Snowflakes
)

// begin starts an installation. Its segments are short, so that its generators claim all the time.
func begin(t *testing.T, where setup, flags ...string) *installation {
	t.Helper()
	in := &installation{T: t, setup: where, random: allocatortest.Seed(t)}
	in.flags = []string{"--tag", order + ":100", "--tag", idle + ":100", "--max-step", "500"}
	if where.mysql {
		in.dsn = in.newDatabase()
		in.db = openDB(t, in.dsn)
		in.flags = append(in.flags, "--tag-refresh", "200ms")
	}
	if where.zookeeper {
		hosts := kit.ZooKeeperHosts(t)
		in.keeper, in.place = kit.NewLink(t, hosts), "test-"+strings.ToLower(filepath.Base(t.TempDir()))+fmt.Sprint(in.random.Uint64())
		in.flags = append(in.flags, "--zookeeper", in.keeper.Addr(), "--zookeeper-name", in.place)
	}
	in.flags = append(in.flags, flags...)
	switch {
	case where.cluster:
		in.servers = newCluster(t)
		in.url = in.servers.url(0)
	case !where.embedded:
		in.nats = newNATS(t, where.config)
		in.url = in.nats.ClientURL()
	}
	for range where.nodes {
		in.join()
	}
	in.nc = kit.Connect(t, in.url)
	js, err := jetstream.New(in.nc)
	kit.Must(t, err)
	in.js = js
	if where.nodes == 0 {
		return in
	}
	in.create(fmt.Sprintf(`{"tag":%q,"order":"strict"}`, invoice))
	in.create(fmt.Sprintf(`{"tag":%q,"step":100,"opaque":"53"}`, coupon))
	return in
}

// join starts one more generator, at an HTTP address that it keeps, and returns its number.
func (in *installation) join(flags ...string) int {
	in.Helper()
	i := in.enter(flags...)
	in.nodes[i].AwaitReady("segments", "snowflakes")
	return i
}

// enter is join that does not wait for IDs.
func (in *installation) enter(flags ...string) int {
	in.Helper()
	i := len(in.nodes)
	in.nodes = append(in.nodes, kit.Begin(in.T, in.TempDir(), in.arguments(i, flags...)...))
	if in.url == "" {
		in.url = in.nodes[0].URL
	}
	return i
}

// arguments are those of the generator with the number i.
func (in *installation) arguments(i int, flags ...string) []string {
	at := []string{"--listen", testkit.FreeAddress(in.T)}
	if in.url != "" {
		at = []string{"-s", in.urlOf(i)}
	}
	if in.linked {
		in.paths = append(in.paths, kit.NewLink(in.T, strings.TrimPrefix(at[1], "nats://")))
		at[1] = "nats://" + in.paths[i].Addr()
	}
	at = append(at, "--http", testkit.FreeAddress(in.T), "--node", fmt.Sprint("n", i))
	if in.mysql {
		way, dsn := in.through(in.dsn)
		in.ways = append(in.ways, way)
		at = append(at, "--mysql", dsn)
	}
	return slices.Concat(at, in.flags, flags)
}

// urlOf is where a generator joins NATS.
func (in *installation) urlOf(i int) string {
	if in.cluster {
		return in.servers.url(i % 3)
	}
	return in.url
}

// call starts callers of all kinds.
func (in *installation) call(row scenario) {
	in.Helper()
	if in.asked = row.tags; in.asked == nil {
		in.asked = []string{order, coupon, snowflakes, invoice}
	}
	var addresses []string
	for _, g := range in.nodes {
		addresses = append(addresses, g.HTTP)
	}
	cfg := callers.Config{Batch: 200, Once: 2 * time.Second, Pause: 4 * time.Millisecond, MayFail: row.fails}
	if strict := []string{invoice}; slices.Contains(in.asked, invoice) {
		cfg.Tags, cfg.Strict = strict, strict
		in.strict = callers.New(in.T, cfg).All(in.url, addresses...)
	}
	cfg.Tags, cfg.Strict = slices.DeleteFunc(slices.Clone(in.asked), func(tag string) bool { return tag == invoice }), nil
	in.callers = callers.New(in.T, cfg).All(in.url, addresses...)
	in.callAgain()
	in.callers.Fault()
}

// callAgain waits until each kind of caller got IDs again.
func (in *installation) callAgain() {
	in.Helper()
	for _, c := range []*callers.Callers{in.callers, in.strict} {
		if c != nil {
			c.MoreOfEach()
			c.Check()
		}
	}
}

// more waits until callers got IDs some times more.
func (in *installation) more(calls int64) {
	in.Helper()
	in.callers.More(calls)
	if in.strict != nil {
		in.strict.More(calls / 10)
	}
}

// highest is the highest ID that callers got of the first of their tags.
func (in *installation) highest() int64 { return in.callers.Highest(in.asked[0]) }

// ahead waits until IDs of that tag come that are so far above all that came: they were claimed since.
func (in *installation) ahead(by int64) {
	in.Helper()
	until := in.highest() + by
	testkit.Eventually(in.T, fmt.Sprint("IDs above ", until), func() bool {
		in.callers.More(20)
		return in.highest() > until
	})
	in.callers.Check()
}

func (in *installation) stopCalling() {
	in.Helper()
	in.callers.Stop()
	if in.strict != nil {
		in.strict.Stop()
	}
}

// audit runs leaf audit with all that callers got. It may find no contradictions but those of these kinds.
func (in *installation) audit(expected []string) {
	in.Helper()
	var ofTags, flakes strings.Builder
	for _, tag := range in.asked {
		from := in.callers
		if tag == invoice {
			from = in.strict
		}
		for _, r := range from.Ranges(tag) {
			if tag == snowflakes {
				fmt.Fprintf(&flakes, "%d-%d\n", r.First, r.Last)
			} else {
				fmt.Fprintf(&ofTags, "%s %d-%d\n", tag, r.First, r.Last)
			}
		}
	}
	args := []string{"audit", "--json", "-s", in.url}
	for flag, text := range map[string]string{"--taken": ofTags.String(), "--taken-snowflakes": flakes.String()} {
		if file := filepath.Join(in.TempDir(), "taken"); text != "" {
			kit.Must(in.T, os.WriteFile(file, []byte(text), 0o600))
			args = append(args, flag, file)
		}
	}
	report := in.auditWith(args...)
	for _, c := range report.Contradictions {
		if !slices.Contains(expected, c.Kind) {
			in.Errorf("leaf audit: %s: %s", c.Kind, c.Message)
		}
	}
	if report.Events == 0 {
		in.Error("leaf audit read no event")
	}
}

// auditReport is what leaf audit --json writes.
type auditReport struct {
	Events         int64
	Contradictions []struct{ Kind, Message string }
}

// auditWith repeats an audit that could not read everything, as after an election.
func (in *installation) auditWith(args ...string) (report auditReport) {
	in.Helper()
	testkit.Eventually(in.T, "an audit that can read everything", func() bool {
		r := kit.Leaf(in.T, args...)
		return json.Unmarshal([]byte(r.Stdout), &report) == nil
	})
	return report
}

// newDatabase returns the DSN of an empty database.
func (in *installation) newDatabase() string {
	in.Helper()
	if !in.server {
		return kit.NewDatabase(in.T)
	}
	in.mariadb = kit.NewMariaDB(in.T)
	dsn, err := in.mariadb.Database()
	kit.Must(in.T, err)
	return dsn
}

// through puts a link in front of a database, and returns the DSN that leads through it.
func (in *installation) through(dsn string) (*kit.Link, string) {
	in.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	kit.Must(in.T, err)
	way := kit.NewLink(in.T, cfg.Addr)
	cfg.Addr = way.Addr()
	return way, cfg.FormatDSN()
}

// again starts a generator that has ended, and waits for these kinds of IDs. The default is both.
func (in *installation) again(i int, kinds ...string) {
	in.Helper()
	g := in.nodes[i]
	in.nodes[i] = kit.Begin(in.T, g.Dir, g.Arguments()...)
	if kinds == nil {
		kinds = []string{"segments", "snowflakes"}
	}
	in.nodes[i].AwaitReady(kinds...)
}

func (in *installation) kill(i int)   { in.Helper(); kit.Must(in.T, in.nodes[i].Kill()) }
func (in *installation) stop(i int)   { in.Helper(); kit.Must(in.T, in.nodes[i].Stop()) }
func (in *installation) freeze(i int) { in.Helper(); kit.Must(in.T, in.nodes[i].Freeze()) }
func (in *installation) thaw(i int)   { in.Helper(); kit.Must(in.T, in.nodes[i].Thaw()) }

// each does something to each generator.
func (in *installation) each(do ...func(i int)) {
	for i := range in.nodes {
		for _, f := range do {
			f(i)
		}
	}
}

// forgetFolder removes the data folder of a generator that has ended.
func (in *installation) forgetFolder(i int) {
	in.Helper()
	kit.Must(in.T, os.RemoveAll(in.nodes[i].Data))
}

// ask sends a request that must be answered.
func (in *installation) ask(subject, body string) *nats.Msg {
	in.Helper()
	msg, err := in.nc.Request(subject, []byte(body), testkit.Patience)
	if err != nil {
		in.Fatalf("request on %q: %v", subject, err)
	}
	return msg
}

func (in *installation) create(record string) {
	in.Helper()
	if err := bus.ReplyError(in.ask(bus.SubjectTagsCreate, record)); err != nil {
		in.Fatalf("creating %s: %v", record, err)
	}
}

// take returns an ID that must come. Empty is a snowflake.
func (in *installation) take(tag string) int64 {
	in.Helper()
	var id int64
	testkit.Eventually(in.T, "an ID of "+cmp.Or(tag, "snowflakes"), func() bool {
		ranges, err := in.request(tag, 1)
		if err == nil {
			id = ranges[0].First
		}
		return err == nil
	})
	return id
}

// request asks once.
func (in *installation) request(tag string, n int64) ([]bus.Range, error) {
	subject := bus.SubjectSnowflake
	if tag != snowflakes {
		subject = bus.SubjectSegment + "." + tag
	}
	msg, err := in.nc.Request(subject, fmt.Append(nil, n), 2*time.Second)
	if err == nil {
		err = bus.ReplyError(msg)
	}
	if err != nil {
		return nil, err
	}
	return bus.ParseReply(msg.Data)
}

// above demands that the next IDs of a tag, of whichever generators, are at least least.
func (in *installation) above(tag string, least int64) {
	in.Helper()
	for range 10 {
		if id := in.take(tag); id < least {
			in.Fatalf("ID %d of %q came, and all below %d are in use", id, tag, least)
		}
	}
}

// refused uses up what is in memory, and waits for a refusal with this reason and text.
func (in *installation) refused(tag string, n int64, reason bus.Reason, text string) {
	in.Helper()
	testkit.Eventually(in.T, fmt.Sprintf("a refusal of %q: %s", tag, reason), func() bool {
		_, err := in.request(tag, n)
		return is(err, reason) && strings.Contains(err.Error(), text)
	})
}

// leaf runs a command against the installation until it succeeds, and returns its output: a generator that was cut
// off for a moment refuses changes for a second.
func (in *installation) leaf(args ...string) (stdout string) {
	in.Helper()
	testkit.Eventually(in.T, fmt.Sprint("leaf ", args), func() bool {
		r := kit.Leaf(in.T, append(args, "-s", in.url)...)
		stdout = r.Stdout
		return r.Status == 0
	})
	return stdout
}
