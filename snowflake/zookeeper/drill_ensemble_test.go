//go:build drills

package zookeeper

import (
	"slices"
	"testing"

	"github.com/leafbus/leafbus/tests/kit"
)

// The servers of an ensemble are killed and frozen, one and a majority and all of them. A worker's
// keeper is registered, once, as the one that it was, whenever there is a majority.
func TestDrillEnsemble(t *testing.T) {
	e := kit.NewEnsemble(t)
	s := newSite(t, e.Hosts())
	k := newKeeper(t, s)
	k.reports()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	its := func() *kit.ZooKeeper { // the server that the keeper talks to
		at := k.server()
		return e[slices.IndexFunc(e, func(s *kit.ZooKeeper) bool { return s.Addr() == at })]
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
	must(at.Run())

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
	must(at.Run())
	holds("a majority is back")
	must(leader.Run())

	for _, s := range e {
		must(s.Kill())
	}
	for _, s := range e {
		must(s.Run())
	}
	holds("all were killed")
}
