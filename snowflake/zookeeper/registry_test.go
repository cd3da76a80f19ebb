package zookeeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
	"github.com/leafbus/leafbus/tests/kit"
)

// TestMain finds goroutines that are left.
func TestMain(m *testing.M) {
	testkit.AtOnce(24) // they wait for a server, or for the end of a session
	code := kit.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// site is a place in ZooKeeper for one test.
type site struct {
	hosts, name string
	admin       *zk.Conn // an operator's
}

func newSite(tb testing.TB, hosts string) *site {
	tb.Helper()
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '.'
	}, tb.Name())
	conn, _, err := zk.Connect(strings.Split(hosts, ","), 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(silent{}))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(conn.Close)
	return &site{hosts: hosts, name: fmt.Sprintf("%.40s.%d", name, time.Now().UnixNano()), admin: conn}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func (s *site) path(names ...string) string {
	return path.Join(append([]string{rootFolder, s.name}, names...)...)
}

// open returns a registry of the generator node, which nobody has claimed yet.
func (s *site) open(tb testing.TB, node string) *Registry {
	tb.Helper()
	r, err := New(Config{Hosts: s.hosts, Name: s.name, Node: node, Port: "4222", Log: testkit.Quiet})
	if err != nil {
		tb.Fatal(err)
	}
	r.link.timeout = 10 * time.Second // the servers' most: a busy machine ends no session
	tb.Cleanup(r.Close)
	return r
}

// claimed returns a registry of the installation "test".
func (s *site) claimed(tb testing.TB, node string) *Registry {
	tb.Helper()
	r := s.open(tb, node)
	var err error
	testkit.Eventually(tb, "a connection that lasts for a claim", func() bool {
		_, _, err = r.Claim(within(tb), "test", true)
		return !errors.Is(err, zk.ErrConnectionClosed)
	})
	if err != nil {
		tb.Fatalf("Claim: %v", err)
	}
	return r
}

// newProxied returns a place and a way to it that can be cut.
func newProxied(tb testing.TB, hosts string) (s, behind *site, p *kit.Link) {
	tb.Helper()
	p, err := kit.StartLink(hosts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	s = newSite(tb, hosts)
	way := *s
	way.hosts = p.Addr()
	return s, &way, p
}

func within(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	tb.Cleanup(cancel)
	return ctx
}

// children returns the data of a folder's nodes; none if there is no folder.
func (s *site) children(tb testing.TB, folder string) map[string]string {
	tb.Helper()
	names, _, err := s.admin.Children(folder)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		tb.Fatal(err)
	}
	found := make(map[string]string)
	for _, name := range names {
		text, _, err := s.admin.Get(folder + "/" + name)
		if err != nil {
			tb.Fatal(err)
		}
		found[name] = string(text)
	}
	return found
}

// wipe removes a folder and what is in it.
func (s *site) wipe(tb testing.TB, folder string) {
	tb.Helper()
	for name := range s.children(tb, folder) {
		s.remove(tb, folder+"/"+name)
	}
	s.remove(tb, folder)
}

// save returns a function that makes the records anew, as an operator with a
// backup would.
func (s *site) save(tb testing.TB) (restore func()) {
	saved := s.children(tb, s.path("leaf_forever"))
	return func() {
		s.wipe(tb, s.path("leaf_forever"))
		s.create(tb, s.path("leaf_forever"), "")
		for name, text := range saved {
			s.create(tb, s.path("leaf_forever", name), text)
		}
	}
}

// leaseOf is the session that holds a generator's temporary node; 0 if there is none.
func (s *site) leaseOf(tb testing.TB, node string) int64 {
	tb.Helper()
	_, stat, err := s.admin.Exists(s.path("leaf_temporary", node))
	if err != nil {
		tb.Fatal(err)
	}
	return stat.EphemeralOwner
}

// parse reads the JSON of a node; that of none is zero.
func parse[T any](tb testing.TB, text string) (v T) {
	tb.Helper()
	if err := json.Unmarshal([]byte(text), &v); text != "" && err != nil {
		tb.Errorf("%q: %v", text, err)
	}
	return v
}

func (s *site) create(tb testing.TB, where, text string) {
	tb.Helper()
	if _, err := s.admin.Create(where, []byte(text), 0, open); err != nil {
		tb.Fatalf("%s: %v", where, err)
	}
}

// folders makes the folders above the installation's.
func (s *site) folders(tb testing.TB) {
	tb.Helper()
	for _, folder := range []string{rootFolder, s.path()} {
		if _, err := s.admin.Create(folder, nil, 0, open); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			tb.Fatal(err)
		}
	}
}

func (s *site) remove(tb testing.TB, where string) {
	tb.Helper()
	if err := s.admin.Delete(where, -1); err != nil {
		tb.Fatalf("%s: %v", where, err)
	}
}

var anyWorker = snowflake.Choice{First: 0, Last: 1023}

// holder is the record of a generator that starts.
func holder(node string) snowflake.Record {
	return snowflake.Record{Node: node, Incarnation: "of " + node, ReservedUntil: 1_800_000_000_000, Acquired: 1_700_000_000_000, Reported: 1_700_000_000_001}
}

// add adds a generator's first record.
func add(tb testing.TB, r *Registry, node string) snowflake.Entry {
	tb.Helper()
	e, err := r.Add(within(tb), holder(node), anyWorker)
	if err != nil {
		tb.Fatalf("Add: %v", err)
	}
	return e
}

// report puts the holder's record once more.
func report(tb testing.TB, r *Registry, e *snowflake.Entry) {
	tb.Helper()
	e.Reported++
	version, err := r.Put(within(tb), e.Record, e.Version)
	if err != nil {
		tb.Fatalf("Put: %v", err)
	}
	e.Version = version
}

func TestConformance(t *testing.T) {
	t.Parallel()
	snowflaketest.Run(t, func(tb testing.TB) snowflaketest.Backend {
		s := newSite(tb, kit.ZooKeeperHosts(tb))
		opened := 0
		return snowflaketest.Backend{
			Open: func(tb testing.TB) snowflake.Registry {
				opened++
				return s.claimed(tb, fmt.Sprint("n", opened))
			},
			Save: s.save,
			Wipe: func(tb testing.TB) { s.wipe(tb, s.path("leaf_forever")) },
		}
	})
}
