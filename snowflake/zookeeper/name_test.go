package zookeeper

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/tests/proxy"
	server "github.com/leafbus/leafbus/tests/zookeeper"
)

// owner is the session that holds a generator's temporary node, and what that
// says; 0 if there is none.
func (s *site) owner(tb testing.TB, node string) (session int64, text string) {
	tb.Helper()
	data, stat, err := s.admin.Get(s.path("leaf_temporary", node))
	if errors.Is(err, zk.ErrNoNode) {
		return 0, ""
	}
	if err != nil {
		tb.Fatal(err)
	}
	return stat.EphemeralOwner, string(data)
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

// A generator that was killed leaves its temporary node for a while. The same
// one starts again at once.
func TestLeftover(t *testing.T) {
	s := newSite(t, server.Hosts(t))
	killed := s.claimed(t, "a") // its session goes on
	e, err := killed.Add(within(t), holder("a"), anyWorker)
	if err != nil {
		t.Fatal(err)
	}
	old, text := s.owner(t, "a")
	if old != killed.link.conn.SessionID() || !strings.Contains(text, `"incarnation":"of a"`) {
		t.Errorf("the temporary node is of session %x: %s", old, text)
	}
	again := s.claimed(t, "a")
	next := e
	next.Incarnation = "next of a"
	if next.Version, err = again.Put(within(t), next.Record, e.Version); err != nil {
		t.Fatalf("Put: %v", err)
	}
	if now, text := s.owner(t, "a"); now != again.link.conn.SessionID() || now == old || !strings.Contains(text, "next of a") {
		t.Errorf("the temporary node is of session %x: %s", now, text)
	}
	report(t, again, &next)
	if _, err := killed.Put(within(t), e.Record, e.Version); !errors.Is(err, snowflake.ErrConflict) {
		t.Errorf("the killed one's Put: %v", err)
	}
}

// Another generator of the same name waits until it is known that the first is
// alive, and is refused then.
func TestSameName(t *testing.T) {
	t.Parallel()
	s := newSite(t, server.Hosts(t))
	first, second := s.claimed(t, "a"), s.claimed(t, "a")
	e, err := first.Add(within(t), holder("a"), anyWorker)
	if err != nil {
		t.Fatal(err)
	}
	other := holder("a")
	other.Incarnation = "another"
	add := func() error {
		_, err := second.Add(within(t), other, anyWorker)
		return err
	}
	for range 3 {
		if err := add(); err == nil || errors.Is(err, snowflake.ErrRefused) {
			t.Fatalf("while it is not known whether the first is alive: %v", err)
		}
	}
	report(t, first, &e)
	err = add()
	if !errors.Is(err, snowflake.ErrRefused) || !strings.Contains(err.Error(), "the name a") || !strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("when it is: %v", err)
	}
	if made := s.children(t, s.path("leaf_forever")); len(made) != 1 {
		t.Errorf("nodes: %v", made)
	}
	report(t, first, &e)
	first.link.conn.Close()
	testkit.Eventually(t, "the name is free when the first has ended", func() bool { return add() == nil })
}

// The holder of a record extends it also while its name is another's.
func TestReportWithoutName(t *testing.T) {
	s := newSite(t, server.Hosts(t))
	r := s.claimed(t, "a")
	e, err := r.Add(within(t), holder("a"), anyWorker)
	if err != nil {
		t.Fatal(err)
	}
	r.own = nameNode{} // as after a session that ended
	s.remove(t, s.path("leaf_temporary", "a"))
	s.create(t, s.path("leaf_temporary", "a"), `{"incarnation":"another"}`)
	for range 3 {
		report(t, r, &e)
	}
	s.remove(t, s.path("leaf_temporary", "a"))
	report(t, r, &e)
	if now, _ := s.owner(t, "a"); now != r.link.conn.SessionID() {
		t.Errorf("the temporary node is of session %x", now)
	}
}

// After a session has ended, unnoticed by whoever was cut off, the next report
// makes the temporary node anew.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t, server.Hosts(t))
	p, err := proxy.Start(s.hosts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	s.hosts = p.Addr()
	r := s.claimed(t, "a")
	e, err := r.Add(within(t), holder("a"), anyWorker)
	if err != nil {
		t.Fatal(err)
	}
	old, _ := s.owner(t, "a")
	p.Refuse(true)
	p.Cut()
	testkit.Eventually(t, "the session ends", func() bool { now, _ := s.owner(t, "a"); return now == 0 })
	p.Refuse(false)
	report(t, r, &e)
	if now, _ := s.owner(t, "a"); now == 0 || now == old {
		t.Errorf("the temporary node is of session %x, after %x", now, old)
	}
}
