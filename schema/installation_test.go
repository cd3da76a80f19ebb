package schema

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/tests/kit"
)

// claimed opens a store whose database belongs to the installation "mine".
func claimed(tb testing.TB, dsn string, log io.Writer) (s *Database, id string) {
	tb.Helper()
	s = prepare(tb, dsn, log)
	_, id, err := s.Claim(within(tb), "mine", true)
	if err := errors.Join(err, s.Open(within(tb))); err != nil {
		tb.Fatal(err)
	}
	return s, id
}

// TestClaimBetween has another installation claim the database just before our row is written.
func TestClaimBetween(t *testing.T) {
	t.Parallel()
	dsn := kit.NewDatabase(t)
	p, slow := through(t, dsn)
	s, other := newDatabase(t, slow), newDatabase(t, dsn)
	p.OnRequest(func(data []byte) kit.Action {
		if bytes.Contains(data, []byte("INSERT")) {
			if of, _, err := other.Claim(within(t), "theirs", true); of != "theirs" || err != nil {
				t.Errorf("the other Claim: %q, %v", of, err)
			}
		}
		return kit.Forward
	})
	if of, _, err := s.Claim(within(t), "mine", true); of != "theirs" || err != nil {
		t.Errorf("Claim: %q, %v", of, err)
	}
}

// TestClaimOnlyLooks creates nothing in a database that belongs to nobody, and claims nothing.
func TestClaimOnlyLooks(t *testing.T) {
	t.Parallel()
	dsn := kit.NewDatabase(t)
	for range 2 {
		if of, id, err := prepare(t, dsn, io.Discard).Claim(within(t), "mine", false); of != "" || id != "" || err != nil {
			t.Errorf("Claim: %q, %q, %v", of, id, err)
		}
		if n := ask[int](t, dsn, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"); n != 0 {
			t.Fatalf("there are %d tables", n)
		}
	}
}

// TestClaimOfOthers leaves the database of another installation alone, until a person makes it ours.
func TestClaimOfOthers(t *testing.T) {
	t.Parallel()
	dsn := kit.NewDatabase(t)
	_, theirs, err := newDatabase(t, dsn).Claim(within(t), "theirs", true)
	if err != nil {
		t.Fatal(err)
	}
	s := prepare(t, dsn, io.Discard)
	if of, id, err := s.Claim(within(t), "mine", true); err != nil || of != "theirs" || id != theirs {
		t.Errorf("Claim: %q, %q, %v", of, id, err)
	}
	// Until it is open, nothing is served from it.
	wantError(t, "Add", s.Add(within(t), allocator.Row{Name: "order", MaxID: 1, Step: 1}), allocator.ErrUnavailable)
	_, _, err = s.Advance(within(t), "order", 1, 10, 1)
	wantError(t, "Advance", err, allocator.ErrUnavailable)
	execute(t, dsn, "DELETE FROM leaf_installation")
	if err := errors.Join(s.Open(within(t)), s.Check(within(t))); err != nil {
		t.Error(err)
	}
	if n := ask[int](t, dsn, "SELECT COUNT(*) FROM leaf_installation"); n != 0 {
		t.Errorf("it was claimed in another's name")
	}
	for range 2 {
		execute(t, dsn, s.Repair("mine", "D"))
		if of, id, err := s.Claim(within(t), "mine", false); err != nil || of != "mine" || id != "D" {
			t.Errorf("Claim: %q, %q, %v", of, id, err)
		}
		execute(t, dsn, "UPDATE leaf_installation SET id = 'theirs', store = 'another'")
	}
}

// TestAddressLeadsElsewhere moves the address to another database, with and
// without an owner: nothing is reserved there, and nothing is claimed.
func TestAddressLeadsElsewhere(t *testing.T) {
	t.Parallel()
	dsn, there := kit.NewDatabase(t), kit.NewMariaDB(t)
	here := ""
	edit(t, dsn, func(cfg *mysql.Config) { here = cfg.Addr })
	moved := edit(t, dsn, func(cfg *mysql.Config) { cfg.Addr = there.Addr() })
	execute(t, there.DSN(""), "CREATE DATABASE "+name(t, dsn))
	insert(t, newDatabase(t, dsn), "order", 1, 10)
	insert(t, newDatabase(t, moved), "order", 1, 10)
	front, address := through(t, dsn)
	s, _ := claimed(t, address, io.Discard)
	first := advance(t, s, "order", 1, 1)
	for _, owned := range []bool{false, true} {
		if owned {
			execute(t, moved, "INSERT INTO leaf_installation (id, store) VALUES ('theirs', 'theirs')")
		}
		front.Lead(there.Addr())
		for range 3 {
			_, _, err := s.Advance(within(t), "order", 1, 10, 1)
			wantError(t, "Advance elsewhere", err, allocator.ErrUnavailable)
		}
		wantError(t, "Check elsewhere", s.Check(within(t)), allocator.ErrUnavailable)
		wantError(t, "Rows elsewhere", s.Rows(within(t), func(r allocator.Row) { t.Errorf("it has %+v", r) }), allocator.ErrUnavailable)
		if n := ask[int](t, moved, "SELECT max_id FROM leaf_alloc"); n != 1 {
			t.Errorf("max_id is %d there", n)
		}
		if n := ask[int](t, moved, "SELECT COUNT(*) FROM leaf_installation WHERE id = 'mine'"); n != 0 {
			t.Errorf("it was claimed")
		}
		front.Lead(here)
		if r := advance(t, s, "order", 1, 1); r.First <= first.Last {
			t.Errorf("back again: %+v", r)
		}
	}
}

// name is that of the database of a DSN.
func name(tb testing.TB, dsn string) (name string) {
	edit(tb, dsn, func(cfg *mysql.Config) { name = cfg.DBName })
	return name
}

// TestOwnerChanges empties the database, or gives it to others, under a store
// that reads it.
func TestOwnerChanges(t *testing.T) {
	t.Parallel()
	dsn := kit.NewDatabase(t)
	s, id := claimed(t, dsn, io.Discard)
	insert(t, s, "order", 1, 10)
	check(t, s)
	execute(t, dsn, "DELETE FROM leaf_installation")
	err := s.Check(within(t)) // a restore may be about to write the row
	wantError(t, "Check of a database that lost its owner", err, allocator.ErrUnavailable)
	if n := ask[int](t, dsn, "SELECT COUNT(*) FROM leaf_installation"); n != 0 || !strings.Contains(err.Error(), s.Repair("mine", id)) {
		t.Errorf("it has %d rows, and Check says %v", n, err)
	}
	execute(t, dsn, s.Repair("mine", id))
	check(t, s)
	other, _ := claimed(t, dsn, io.Discard)
	check(t, other) // over a connection that it has from now on
	for change, s := range map[string]*Database{"id = 'theirs'": s, "id = 'mine', store = 'other'": other} {
		execute(t, dsn, "UPDATE leaf_installation SET "+change)
		wantError(t, "Check of a database of others", s.Check(within(t)), allocator.ErrRefused)
		// That stays, whatever works.
		_, _, err := s.Advance(within(t), "order", 1, 10, 1)
		wantError(t, "Advance", err, allocator.ErrRefused)
		wantError(t, "Err", s.Err(), allocator.ErrRefused)
		execute(t, dsn, "UPDATE leaf_installation SET id = 'mine', store = '"+id+"'")
	}
}
