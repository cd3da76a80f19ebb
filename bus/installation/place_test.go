package installation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/kvstore"
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

// Each data centre may have a ZooKeeper of its own, as long as no worker is in two.
func TestZooKeepersOfDataCentres(t *testing.T) {
	s := newSite(t)
	s.zk = newZooKeeper("unused")
	m := s.member(s.folder())
	s.record() // makes the bucket
	if err := m.create(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.have = s.record()
	at := func(name string, first, last int64) kvstore.ZooKeeper {
		return kvstore.ZooKeeper{ID: "ID of " + name, Name: name, Installation: m.have.ID, First: first, Last: last}
	}
	places := map[string]*fakeZooKeeper{"A": newZooKeeper("A"), "B": newZooKeeper("B"), "C": newZooKeeper("C")}
	for _, step := range []struct {
		place       string
		first, last int64
		then        []kvstore.ZooKeeper // nil: refused
	}{
		{"A", 64, 95, []kvstore.ZooKeeper{at("A", 64, 95)}},
		{"A", 64, 95, []kvstore.ZooKeeper{at("A", 64, 95)}},
		{"A", 70, 80, []kvstore.ZooKeeper{at("A", 64, 95)}},
		{"B", 95, 100, nil},
		{"B", 0, 64, nil},
		{"B", 0, 1023, nil},
		{"B", 70, 80, nil},
		{"B", 0, 31, []kvstore.ZooKeeper{at("B", 0, 31), at("A", 64, 95)}},
		{"B", 20, 70, nil}, // some are its own, and some are not
		{"A", 96, 96, []kvstore.ZooKeeper{at("B", 0, 31), at("A", 64, 96)}},
		{"A", 32, 40, []kvstore.ZooKeeper{at("B", 0, 31), at("A", 32, 40), at("A", 64, 96)}},
		{"A", 41, 63, []kvstore.ZooKeeper{at("B", 0, 31), at("A", 32, 96)}},
		{"C", 97, 1023, []kvstore.ZooKeeper{at("B", 0, 31), at("A", 32, 96), at("C", 97, 1023)}},
		{"A", 31, 40, nil},
	} {
		before := s.record()
		for _, have := range []kvstore.Installation{{ID: before.ID}, before} { // noted meanwhile, or known
			m.have = have
			_, err := m.admit(t.Context(), zooKeeper{places[step.place], step.first, step.last})
			want := step.then
			if want == nil {
				want = before.ZooKeepers
			}
			if errors.Is(err, allocator.ErrRefused) != (step.then == nil) || (err == nil) != (step.then != nil) {
				t.Errorf("%+v: %v", step, err)
			}
			if noted := s.record().ZooKeepers; !slices.Equal(noted, want) {
				t.Fatalf("%+v: noted %v, want %v", step, noted, want)
			}
		}
	}
}

// Those who are first at once do not undo each other's notes.
func TestNotesAtOnce(t *testing.T) {
	s := newSite(t)
	s.db, s.zk = newDatabase("db"), newZooKeeper("zk")
	m := s.member(s.folder())
	s.record() // makes the bucket
	if err := m.create(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.have = s.record()
	var together sync.WaitGroup
	for i := range int64(8) {
		for _, u := range []use{zooKeeper{s.zk, 10 * i, 10*i + 5}, m.database} {
			other := *m
			together.Go(func() {
				if _, err := other.admit(t.Context(), u); err != nil {
					t.Error(err)
				}
			})
		}
	}
	together.Wait()
	if have := s.record(); len(have.ZooKeepers) != 8 || have.Database != "ID of db" {
		t.Errorf("the record is %+v", have)
	}
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
	r := m.claimed(s.zk)
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

// silent is a place that answers when the test lets it.
type silent struct {
	*fakeZooKeeper
	asked chan struct{}
}

func (p silent) Claim(ctx context.Context, _ string, _ bool) (string, string, error) {
	p.asked <- struct{}{}
	<-ctx.Done()
	return "", "", ctx.Err()
}

// While ZooKeeper does not answer one question, another ends with its context.
func TestQuestionsEnd(t *testing.T) {
	m := newSite(t).member(openFolder(t, t.TempDir(), ""))
	r := m.claimed(silent{newZooKeeper("zk"), make(chan struct{})})
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { _, err := r.List(ctx); first <- err }()
	<-r.Registry.(silent).asked
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := r.List(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("the second: %v", err)
	}
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
}
