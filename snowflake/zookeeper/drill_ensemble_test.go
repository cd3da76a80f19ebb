//go:build drills

package zookeeper

import (
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
	server "github.com/leafbus/leafbus/tests/zookeeper"
)

// The servers of an ensemble are killed and frozen, one and a majority and all of them. Issuing never stops, and
// the generator is registered, as it was, whenever there is a majority.
func TestDrillEnsemble(t *testing.T) {
	e := server.NewEnsemble(t)
	s := newSite(t, e.Hosts())
	m := newMachine(t, s, 2*time.Minute)
	g := m.start()
	worker := g.reports()
	g.issuing(nil)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	its := func() *server.Server { // the server that the generator talks to
		at := g.registry.server()
		for _, s := range e.Servers {
			if s.Addr() == at {
				return s
			}
		}
		t.Fatalf("it is connected to %q, none of %s", at, e.Hosts())
		return nil
	}
	holds := func(when string) {
		t.Helper()
		if now := g.reports(); now != worker {
			t.Errorf("worker %d; it was %d", now, worker)
		}
		again := newSite(t, s.hosts) // an operator's client may wait for a server that was frozen for minutes
		again.name = s.name
		if g.holds(t, again); t.Failed() {
			t.Fatal(when)
		}
	}

	at := its()
	must(at.Kill())
	holds("its server was killed")
	must(at.Start())

	at = its()
	must(at.Freeze())
	g.reports()
	must(at.Thaw())
	holds("its server was frozen")

	leader, err := e.Leader()
	must(err)
	must(leader.Kill())
	holds("the leader was killed")

	at = its()
	failed := g.registry.failed.Load()
	must(at.Kill())
	testkit.Eventually(t, "without a majority nothing is written", func() bool { return g.registry.failed.Load() > failed })
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
	m.unique()
}
