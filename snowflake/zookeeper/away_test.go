package zookeeper

import (
	"errors"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/tests/proxy"
	server "github.com/leafbus/leafbus/tests/zookeeper"
)

// ZooKeeper is away, or the network between it and a generator.
func TestAway(t *testing.T) {
	t.Parallel()
	b := newBatch(t, 5)
	defer b.wait()
	b.run("at the start", awayAtStart)
	b.run("while running", awayWhileRunning)
	b.run("for longer than a session", func(t *testing.T) { sessionOver(t, (*proxy.Proxy).Refuse) })
	b.run("for longer than a session, silently", func(t *testing.T) { sessionOver(t, (*proxy.Proxy).Hang) })
	b.run("at one address, where nothing answers", oneHangs)
}

// newProxied returns a place and a way to it that can be cut.
func newProxied(tb testing.TB, hosts string) (s, behind *site, p *proxy.Proxy) {
	tb.Helper()
	p, err := proxy.Start(hosts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	s = newSite(tb, hosts)
	way := *s
	way.hosts = p.Addr()
	return s, &way, p
}

// awayAtStart starts a generator without ZooKeeper. It starts from its file, as
// long as what is reserved there lasts, and registers when ZooKeeper is back.
func awayAtStart(t *testing.T) {
	s, behind, p := newProxied(t, server.Hosts(t))
	var ids allocatortest.Checker
	m := newMachine(t, behind, "a", &ids)
	m.config.Reserve, m.config.Grace = time.Minute, time.Minute
	g := m.start()
	worker := g.registered()
	g.stop()

	p.Refuse(true)
	g = m.start()
	testkit.Eventually(t, "it issues", func() bool { return g.issue(100) == nil })
	if now := g.Worker(); now != worker || g.registry.written.Load() > 0 || len(told[snowflake.WorkerAcquired](g)) > 0 {
		t.Errorf("worker %d; it was %d", now, worker)
	}
	g.issuing(nil)
	p.Refuse(false)
	if now := g.registered(); now != worker {
		t.Errorf("worker %d; it was %d", now, worker)
	}
	testkit.Eventually(t, "that is told", func() bool { return len(told[snowflake.WorkerAcquired](g)) == 1 })
	if owner, _ := s.owner(t, "a"); owner != g.registry.session() {
		t.Errorf("the temporary node is of session %x", owner)
	}
	g.stop()

	// What is reserved is over: nothing is issued before ZooKeeper is asked.
	p.Refuse(true)
	system := snowflake.SystemClock()
	m.config.Clock = func() snowflake.Reading {
		r := system()
		r.Wall += 2 * time.Minute.Milliseconds()
		return r
	}
	g = m.start()
	testkit.Eventually(t, "a call fails", func() bool {
		if err := g.issue(1); !errors.Is(err, snowflake.ErrNoWorker) && !errors.Is(err, snowflake.ErrTimedOut) {
			t.Fatalf("it issues, or: %v", err)
		}
		return g.registry.failed.Load() > 0
	})
	p.Refuse(false)
	if now := g.registered(); now != worker {
		t.Errorf("worker %d; it was %d", now, worker)
	}
	if n := len(s.records(t)); n != 1 {
		t.Errorf("%d nodes", n)
	}
	g.stop()
	unique(t, &ids)
}

// awayWhileRunning takes ZooKeeper away from a generator. It issues to the end of
// what it has reserved, which it tells from half of that on, and not beyond.
func awayWhileRunning(t *testing.T) {
	s, behind, p := newProxied(t, server.Hosts(t))
	var ids allocatortest.Checker
	m := newMachine(t, behind, "a", &ids)
	m.config.Reserve = 4 * time.Second
	clock := snowflake.SystemClock()
	m.config.Clock = clock
	g := m.start()
	worker := g.registered()

	p.Refuse(true)
	issues := func() bool {
		err := g.issue(1)
		if now, until := clock().Wall, g.State().ReservedUntil; err != nil && (now < until || !errors.Is(err, snowflake.ErrNoWorker)) {
			t.Errorf("at %d, and reserved is until %d: %v", now, until, err)
		}
		return err == nil
	}
	testkit.Eventually(t, "the end is told", func() bool {
		issues()
		return len(told[snowflake.WorkerExpiring](g)) > 0
	})
	e := told[snowflake.WorkerExpiring](g)[0]
	if left := e.ReservedUntil - clock().Wall; e.Worker != worker || left > m.config.Reserve.Milliseconds()/2 {
		t.Errorf("%+v was told with %d ms left", e, left)
	}
	testkit.Eventually(t, "nothing is issued", func() bool { return !issues() })
	for name, d := range s.records(t) {
		if g.latest() >= d.ReservedUntil {
			t.Errorf("an ID has the time %d; %s is reserved until %d", g.latest(), name, d.ReservedUntil)
		}
	}

	p.Refuse(false)
	if now := g.registered(); now != worker {
		t.Errorf("worker %d; it was %d", now, worker)
	}
	if r := told[snowflake.Recovered](g); len(r) != 1 || r[0].Episode != snowflake.EpisodeExpiring || len(told[snowflake.WorkerLost](g)) > 0 {
		t.Errorf("it told %+v", told[snowflake.Event](g))
	}
	g.stop()
	unique(t, &ids)
}

// sessionOver has a session end while its generator is cut off. Issuing never
// stops, and the new session has what the old one had.
func sessionOver(t *testing.T, cut func(*proxy.Proxy, bool)) {
	s, behind, p := newProxied(t, server.Hosts(t))
	var ids allocatortest.Checker
	m := newMachine(t, behind, "a", &ids)
	m.config.Reserve = time.Minute
	g := m.start()
	worker := g.registered()
	g.issuing(nil)
	before, _ := s.owner(t, "a")
	cut(p, true)
	testkit.Eventually(t, "the session is over", func() bool { now, _ := s.owner(t, "a"); return now == 0 })
	cut(p, false)
	g.holds(t, s, worker)
	if now, _ := s.owner(t, "a"); now == before {
		t.Errorf("the session is %x as before", now)
	}
	g.stop()
	unique(t, &ids)
}

// oneHangs breaks a generator's connection when the other address accepts
// connections and answers nothing. It comes back to the one that works.
func oneHangs(t *testing.T) {
	s, behind, first := newProxied(t, server.Hosts(t))
	_, other, second := newProxied(t, server.Hosts(t))
	ways := map[string]*proxy.Proxy{first.Addr(): first, second.Addr(): second}
	behind.hosts += "," + other.hosts
	var ids allocatortest.Checker
	m := newMachine(t, behind, "a", &ids)
	m.config.Reserve = time.Minute
	g := m.start()
	worker := g.registered()
	g.issuing(nil)
	works := g.registry.server()
	for addr, way := range ways {
		way.Hang(addr != works)
	}
	ways[works].Cut()
	g.holds(t, s, worker)
	g.stop()
	unique(t, &ids)
}
