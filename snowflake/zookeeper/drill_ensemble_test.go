//go:build drills

package zookeeper

import (
	"slices"
	"testing"

	server "github.com/leafbus/leafbus/tests/zookeeper"
)

// The servers of an ensemble are killed and frozen, one and a majority and all of them. A worker's
// keeper is registered, once, as the one that it was, whenever there is a majority.
func TestDrillEnsemble(t *testing.T) {
	e := server.NewEnsemble(t)
	s := newSite(t, e.Hosts())
	k := newKeeper(t, s)
	k.reports()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	its := func() *server.Server { // the server that the keeper talks to
		at := k.link.conn.Server()
		return e.Servers[slices.IndexFunc(e.Servers[:], func(s *server.Server) bool { return s.Addr() == at })]
	}
	holds := func(when string) {
		t.Helper()
		again := newSite(t, s.hosts) // an operator's client may wait for a server that was frozen for minutes
		again.name = s.name
		if k.holds(again); t.Failed() {
			t.Fatal(when)
		}
	}

	at := its()
	must(at.Kill())
	holds("its server was killed")
	must(at.Start())

	at = its()
	must(at.Freeze())
	k.reports()
	must(at.Thaw())
	holds("its server was frozen")

	leader, err := e.Leader()
	must(err)
	must(leader.Kill())
	holds("the leader was killed")

	at = its()
	must(at.Kill())
	if err := k.try(); err == nil {
		t.Error("it was written without a majority")
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
}
