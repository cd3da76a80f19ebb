package faults

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// setup says how an installation is built.
type setup struct {
	name      string
	nodes     int    // generators that run when the fault comes
	embedded  bool   // the generator embeds the NATS server; else a server runs that the row can stop
	config    string // of the NATS server
	linked    bool   // each generator reaches NATS through a link of its own
	mysql     bool   // the tags are in a database, which each generator reaches through a link of its own
	zookeeper bool   // the workers are there, reached through one link
}

// A generator costs half a second of processor, so rows take the smallest installation in which the fault can do harm.
var (
	embedded = setup{name: "embedded", nodes: 1, embedded: true}
	kv       = setup{name: "kv", nodes: 2}
	kvThree  = setup{name: "kv, three generators", nodes: 3}
	kvAlone  = setup{name: "kv, one generator", nodes: 1}
	kvLinked = setup{name: "kv", nodes: 2, linked: true}

	inMySQL     = setup{name: "mysql", nodes: 2, mysql: true}
	mysqlAlone  = setup{name: "mysql, one generator", nodes: 1, mysql: true}
	mysqlLinked = setup{name: "mysql", nodes: 1, mysql: true, linked: true}

	zooKeeperAlone = setup{name: "zookeeper, one generator", nodes: 1, zookeeper: true}
)

// installation is a Leafbus that runs, and those who use it.
type installation struct {
	*testing.T
	setup
	random *rand.Rand
	flags  []string // of each generator
	nodes  []*kit.Generator

	url   string // of NATS
	nats  *natsServer
	paths []*kit.Link // of each generator to NATS
	nc    *nats.Conn
	js    jetstream.JetStream

	dsn  string      // of an operator
	ways []*kit.Link // of each generator to the database
	db   *sql.DB

	keeper *kit.Link // to ZooKeeper
	place  string    // the installation's name there

	asked   []string         // those whose IDs callers ask for
	callers *callers.Callers // of tags in trend order, opaque tags and snowflakes
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
		in.newDatabase()
		in.flags = append(in.flags, "--tag-refresh", "200ms")
	}
	if where.zookeeper {
		in.keeper, in.place = kit.NewLink(t, kit.ZooKeeperHosts(t)), fmt.Sprint("test-", in.random.Uint64())
		in.flags = append(in.flags, "--zookeeper", in.keeper.Addr(), "--zookeeper-name", in.place)
	}
	in.flags = append(in.flags, flags...)
	if !where.embedded {
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
	if where.nodes > 0 {
		kit.Must(t, in.create(fmt.Sprintf(`{"tag":%q,"order":"strict"}`, invoice)))
		kit.Must(t, in.create(fmt.Sprintf(`{"tag":%q,"step":100,"opaque":"53"}`, coupon)))
	}
	return in
}

// join starts one more generator, and returns its number.
func (in *installation) join() int {
	in.Helper()
	i := in.enter()
	in.nodes[i].AwaitReady("segments", "snowflakes")
	return i
}

// enter is join that does not wait for IDs.
func (in *installation) enter(flags ...string) int {
	in.Helper()
	i := len(in.nodes)
	in.nodes = append(in.nodes, kit.Begin(in.T, in.TempDir(), append(in.arguments(i), flags...)...))
	if in.url == "" {
		in.url = in.nodes[0].URL
	}
	return i
}

// arguments are those of the generator with the number i. It keeps its addresses.
func (in *installation) arguments(i int) []string {
	var at []string
	switch {
	case in.embedded && i == 0:
		at = []string{"--listen", testkit.FreeAddress(in.T)}
	case in.linked:
		in.paths = append(in.paths, kit.NewLink(in.T, strings.TrimPrefix(in.url, "nats://")))
		at = []string{"-s", "nats://" + in.paths[i].Addr()}
	default:
		at = []string{"-s", in.url}
	}
	at = append(at, "--http", testkit.FreeAddress(in.T), "--node", fmt.Sprint("n", i))
	if in.mysql {
		at = append(at, "--mysql", in.through())
	}
	return append(at, in.flags...)
}

// again starts a generator that has ended.
func (in *installation) again(i int) {
	in.Helper()
	in.nodes[i] = in.nodes[i].Again()
}

// begin is again that does not wait for IDs.
func (in *installation) begin(i int) {
	in.Helper()
	in.nodes[i] = kit.Begin(in.T, in.nodes[i].Dir, in.nodes[i].Arguments()...)
}

func (in *installation) kill(i int)   { in.Helper(); kit.Must(in.T, in.nodes[i].Kill()) }
func (in *installation) stop(i int)   { in.Helper(); kit.Must(in.T, in.nodes[i].Stop()) }
func (in *installation) freeze(i int) { in.Helper(); kit.Must(in.T, in.nodes[i].Freeze()) }
func (in *installation) thaw(i int)   { in.Helper(); kit.Must(in.T, in.nodes[i].Thaw()) }

func (in *installation) signal(i int, s os.Signal) {
	in.Helper()
	kit.Must(in.T, in.nodes[i].Signal(s))
}

// ended waits for the end of a generator.
func (in *installation) ended(i int) kit.Result {
	in.Helper()
	return kit.Finish(in.T, in.nodes[i].Process)
}

// forgetFolder removes the data folder of a generator that has ended.
func (in *installation) forgetFolder(i int) {
	in.Helper()
	kit.Must(in.T, os.RemoveAll(in.nodes[i].Data))
}

// each does something to each generator, and then the next thing.
func (in *installation) each(do ...func(i int)) {
	in.Helper()
	for _, f := range do {
		for i := range in.nodes {
			f(i)
		}
	}
}

// leaf runs a command until it succeeds, and returns its output: a generator that was cut off refuses changes for a
// second.
func (in *installation) leaf(args ...string) (stdout string) {
	in.Helper()
	testkit.Eventually(in.T, fmt.Sprint("leaf ", args), func() bool {
		r := kit.Leaf(in.T, append(slices.Clone(args), "-s", in.url)...)
		stdout = r.Stdout
		return r.Status == 0
	})
	return stdout
}
