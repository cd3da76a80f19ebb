package installation

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/snowflake"
)

// Two generators that start together bring a database each: the first one counts.
func TestTwoDatabasesAtOnce(t *testing.T) {
	s := newSite(t)
	var members []*member
	for _, name := range []string{"one", "two"} {
		s.db = newDatabase(name)
		members = append(members, s.member(s.folder()))
	}
	errs := make([]error, len(members))
	var together sync.WaitGroup
	for i, m := range members {
		together.Go(func() { _, errs[i] = m.join(t.Context(), mayBegin) })
	}
	together.Wait()
	if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(cmp.Or(errs[0], errs[1]), allocator.ErrRefused) {
		t.Errorf("%v, %v; want one to join and one to be refused", errs[0], errs[1])
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
