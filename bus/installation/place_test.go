package installation

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/tests/kit"
)

// Of two generators that bring a database each at the same moment, the first one counts.
func TestTwoDatabasesAtOnce(t *testing.T) {
	s := newSite(t)
	s.db = newDatabase("one")
	one := s.member(s.folder())
	kit.Must(t, one.write(t.Context(), "A", 0))
	s.db = newDatabase("two")
	// It looks at its database, and then claims it.
	s.db.before = func() { s.db.before = func() { _, err := one.join(t.Context(), mayBegin); kit.Must(t, err) } }
	s.fails(s.folder(), true, "another place (ID of one;")
	if have := s.record(); have.Database != "ID of one" {
		t.Errorf("the record is %+v", have)
	}
}

// While the owner of the database is not known, nothing is created and nothing joined.
func TestWaitsForTheOwner(t *testing.T) {
	s := newSite(t)
	s.db, s.zk = newDatabase("db"), newZooKeeper("zk")
	f := s.folder()
	for _, away := range []*fakePlace{s.db.fakePlace, s.zk.fakePlace} {
		away.err = errGone
		s.fails(f, false, errGone.Error())
		if away.err = nil; s.record().ID != "" || !isNew(t, f) {
			t.Error("something was created")
		}
	}
	s.joins(f)
}

// Each connection asks ZooKeeper for its owner before the first List, and only once.
func TestClaimedRegistry(t *testing.T) {
	s := newSite(t)
	s.zk = newZooKeeper("zk")
	f := s.folder()
	s.joins(f)
	m := s.member(f)
	if _, err := m.join(t.Context(), mayBegin); err != nil {
		t.Fatal(err)
	}
	r := &claimed{Registry: s.zk, m: m}
	s.zk.set(func() { s.zk.asked, s.zk.err = 0, errGone })
	if _, err := r.List(t.Context()); !errors.Is(err, errGone) || errors.Is(err, snowflake.ErrRefused) {
		t.Errorf("List while it is away: %v", err)
	}
	s.zk.set(func() { s.zk.err, s.zk.of = nil, "B" })
	if _, err := r.List(t.Context()); !errors.Is(err, snowflake.ErrRefused) || !strings.Contains(fmt.Sprint(err), "belongs to installation B") {
		t.Errorf("List of what belongs to another: %v", err)
	}
	s.zk.set(func() { s.zk.of, s.zk.asked = m.have.ID, 0 })
	for range 3 {
		if _, err := r.List(t.Context()); err != nil || s.zk.asked != 1 {
			t.Errorf("List: %v; it was asked %d times", err, s.zk.asked)
		}
	}
}
