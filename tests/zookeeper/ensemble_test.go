package zookeeper

import "testing"

func TestEnsemble(t *testing.T) {
	e := NewEnsemble(t)
	write(t, e.Hosts(), "/three")
	leader, err := e.Leader()
	must(t, err)

	must(t, leader.Kill())
	next, err := e.Leader()
	must(t, err)
	if next == leader {
		t.Fatal("a server that was killed leads")
	}
	write(t, next.Addr(), "/two")
	must(t, leader.Start())
	kept(t, leader.Addr(), "/three")
	kept(t, leader.Addr(), "/two")

	must(t, next.Freeze())
	last, err := e.Leader()
	must(t, err)
	if last == next {
		t.Fatal("a server that is frozen leads")
	}
	write(t, last.Addr(), "/frozen")
	must(t, next.Thaw())
}

// Start must not wait for others that no one starts.
func TestMajorityAway(t *testing.T) {
	e := NewEnsemble(t)
	write(t, e.Hosts(), "/node")
	for _, s := range e.Servers {
		must(t, s.Kill())
	}
	must(t, e.Servers[0].Start())
	if leader, err := e.Leader(); err == nil {
		t.Errorf("%s leads alone", leader.Addr())
	}
	must(t, e.Servers[1].Start())
	for _, s := range e.Servers[:2] {
		kept(t, s.Addr(), "/node")
	}
	must(t, e.Servers[2].Start())
	kept(t, e.Servers[2].Addr(), "/node")
}
