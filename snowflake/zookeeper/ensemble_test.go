package zookeeper

import (
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/internal/testkit"
	server "github.com/leafbus/leafbus/tests/zookeeper"
)

// connectedTo is the server of an ensemble that the generator talks to, and its
// place there.
func (g *generator) connectedTo(tb testing.TB, e *server.Ensemble) *server.Server {
	tb.Helper()
	at := g.registry.server()
	for _, s := range e.Servers {
		if s.Addr() == at {
			return s
		}
	}
	tb.Fatalf("it is connected to %q, none of %s", at, e.Hosts())
	return nil
}

// The servers of an ensemble are killed and frozen, one and a majority and all of
// them. Issuing never stops, and the generator is registered, as it was, whenever
// there is a majority.
func TestEnsemble(t *testing.T) {
	t.Parallel()
	e := server.NewEnsemble(t)
	s := newSite(t, e.Hosts())
	var ids allocatortest.Checker
	m := newMachine(t, s, "a", &ids)
	m.config.Reserve = 2 * time.Minute
	g := m.start()
	worker := g.registered()
	g.issuing(nil)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	holds := func(when string) {
		t.Helper()
		g.holds(t, s.again(t), worker)
		if t.Failed() {
			t.Fatal(when)
		}
	}

	at := g.connectedTo(t, e)
	must(at.Kill())
	holds("its server was killed")
	must(at.Start())

	at = g.connectedTo(t, e)
	must(at.Freeze())
	g.reports() // an operator's client may wait for that server for minutes
	must(at.Thaw())
	holds("its server was frozen")

	leader, err := e.Leader()
	must(err)
	must(leader.Kill())
	holds("the leader was killed")

	at = g.connectedTo(t, e)
	failed := g.registry.failed.Load()
	must(at.Kill())
	testkit.Eventually(t, "without a majority nothing is written", func() bool { return g.registry.failed.Load() > failed })
	if err := g.issue(1000); err != nil {
		t.Errorf("without a majority: %v", err)
	}
	must(at.Start())
	holds("a majority is back")
	must(leader.Start())

	for _, s := range e.Servers {
		must(s.Kill())
	}
	for _, s := range e.Servers {
		must(s.Start())
	}
	holds("all were killed")
	g.stop()
	unique(t, &ids)
}
