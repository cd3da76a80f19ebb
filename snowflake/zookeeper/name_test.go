package zookeeper

import (
	"errors"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/tests/kit"
)

// A generator that was killed leaves its temporary node for a while. The same one starts again at once.
func TestLeftover(t *testing.T) {
	t.Parallel()
	s := newSite(t, kit.ZooKeeperHosts(t))
	killed := s.claimed(t, "a") // its session goes on
	e := add(t, killed, "a")
	old, text := s.owner(t, "a")
	if old != killed.link.conn.SessionID() || !strings.Contains(text, `"incarnation":"of a"`) {
		t.Errorf("the temporary node is of session %x: %s", old, text)
	}
	again, next := s.claimed(t, "a"), e
	next.Incarnation = "next of a"
	report(t, again, &next)
	if now, text := s.owner(t, "a"); now != again.link.conn.SessionID() || now == old || !strings.Contains(text, "next of a") {
		t.Errorf("the temporary node is of session %x: %s", now, text)
	}
	report(t, again, &next)
	if _, err := killed.Put(within(t), e.Record, e.Version); !errors.Is(err, snowflake.ErrConflict) {
		t.Errorf("the killed one's Put: %v", err)
	}
}

// Another generator of the same name waits until it is known that the first is alive, and is refused then.
func TestSameName(t *testing.T) {
	t.Parallel()
	s := newSite(t, kit.ZooKeeperHosts(t))
	first, second := s.claimed(t, "a"), s.claimed(t, "a")
	e := add(t, first, "a")
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
	err := add()
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
	t.Parallel()
	s := newSite(t, kit.ZooKeeperHosts(t))
	r := s.claimed(t, "a")
	e := add(t, r, "a")
	r.own = nameNode{} // as after a session that ended
	name := s.path("leaf_temporary", "a")
	s.remove(t, name)
	s.create(t, name, `{"incarnation":"another"}`)
	for range 3 {
		report(t, r, &e)
	}
	s.remove(t, name)
	report(t, r, &e)
	if now, _ := s.owner(t, "a"); now != r.link.conn.SessionID() {
		t.Errorf("the temporary node is of session %x", now)
	}
}
