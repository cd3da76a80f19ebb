package schema

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/tests/mariadb"
	"github.com/leafbus/leafbus/tests/proxy"
)

// TestClaimTogether opens one empty database from many stores at once: it is
// the first one's, and all are told so.
func TestClaimTogether(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	stores, owners := make([]*Store, 8), make([]Owner, 8)
	ctx := within(t)
	var together sync.WaitGroup
	for i := range stores {
		stores[i] = prepareStore(t, dsn, io.Discard)
		together.Go(func() {
			owner, err := stores[i].Claim(ctx, "installation-"+string(rune('a'+i)), "")
			if err != nil {
				t.Errorf("Claim: %v", err)
			}
			owners[i] = owner
		})
	}
	together.Wait()
	have := ask[string](t, dsn, "SELECT CONCAT(id, ' ', store) FROM leaf_installation")
	for _, o := range owners {
		if o.Installation+" "+o.Store != have || !strings.HasPrefix(o.Installation, "installation-") || o.Store == "" {
			t.Errorf("a store was told %+v; the database has %s", o, have)
		}
	}
	if late, err := stores[0].Claim(ctx, "late", ""); err != nil || late != owners[0] {
		t.Errorf("Claim again: %+v, %v", late, err)
	}
}

// TestClaimKnown has a database that the installation is known to use.
func TestClaimKnown(t *testing.T) {
	t.Parallel()
	dsn, otherDSN := mariadb.NewDatabase(t), mariadb.NewDatabase(t)
	s, other := newStore(t, dsn), newStore(t, otherDSN)
	owner, err := s.Claim(within(t), "mine", "")
	if err != nil || owner.Installation != "mine" {
		t.Fatalf("Claim: %+v, %v", owner, err)
	}
	if again, err := s.Claim(within(t), "mine", owner.Store); err != nil || again != owner {
		t.Errorf("Claim again: %+v, %v", again, err)
	}
	// Both would hand out the same IDs.
	_, err = other.Claim(within(t), "mine", owner.Store)
	wantError(t, "Claim of another database, which is nobody's", err, allocator.ErrRefused)
	if n := ask[int](t, otherDSN, "SELECT COUNT(*) FROM leaf_installation"); n != 0 {
		t.Errorf("it was claimed all the same")
	}
	if _, err := other.Claim(within(t), "mine", ""); err != nil {
		t.Fatal(err)
	}
	_, err = other.Claim(within(t), "mine", owner.Store)
	wantError(t, "Claim of another database of ours", err, allocator.ErrRefused)
	execute(t, dsn, "DELETE FROM leaf_installation")
	_, err = newStore(t, dsn).Claim(within(t), "mine", owner.Store)
	wantError(t, "Claim of a database that lost its owner", err, allocator.ErrRefused)
	// The sentence says how to give it back.
	_, statement, _ := strings.Cut(err.Error(), "INSERT")
	execute(t, dsn, "INSERT"+statement)
	if again, err := newStore(t, dsn).Claim(within(t), "mine", owner.Store); err != nil || again != owner {
		t.Errorf("Claim of what was given back: %+v, %v", again, err)
	}
}

// TestClaimOfOthers leaves a database that is another's alone.
func TestClaimOfOthers(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	theirs, err := newStore(t, dsn).Claim(within(t), "theirs", "")
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(t, dsn)
	if owner, err := s.Claim(within(t), "mine", ""); err != nil || owner != theirs {
		t.Errorf("Claim: %+v, %v", owner, err)
	}
	execute(t, dsn, "DELETE FROM leaf_installation")
	err = s.read(within(t), true, func(tag allocator.Tag) { t.Errorf("told of %+v", tag) })
	wantError(t, "a reading of what is nobody's", err, allocator.ErrUnavailable)
	if n := ask[int](t, dsn, "SELECT COUNT(*) FROM leaf_installation"); n != 0 {
		t.Errorf("it was claimed in another's name")
	}
}

// TestNotBeforeItIsKnown serves nothing from a database that is being claimed:
// it may turn out to be the wrong one.
func TestNotBeforeItIsKnown(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	createTag(t, newStore(t, dsn), "order", 1, 10)
	s := prepareStore(t, dsn, io.Discard)
	if _, err := s.Claim(within(t), "mine", ""); err != nil {
		t.Fatal(err)
	}
	_, err := s.Reserve(within(t), "order", 1)
	wantError(t, "Reserve", err, allocator.ErrUnavailable)
	_, err = s.Create(within(t), allocator.Tag{Name: "other", MaxID: 1, Step: 1})
	wantError(t, "Create", err, allocator.ErrUnavailable)
	if n := ask[int](t, dsn, "SELECT SUM(max_id) FROM leaf_alloc"); n != 1 {
		t.Errorf("max_id is %d", n)
	}
}

// TestAddressLeadsElsewhere moves the address to another database, with and
// without an owner: nothing is reserved there, and nothing is claimed.
func TestAddressLeadsElsewhere(t *testing.T) {
	t.Parallel()
	here, there := mariadb.New(t), mariadb.New(t)
	dsn, err := here.Database()
	if err != nil {
		t.Fatal(err)
	}
	moved := edit(t, dsn, func(cfg *mysql.Config) { cfg.Addr = there.Addr() })
	execute(t, there.DSN(""), "CREATE DATABASE "+name(t, dsn))
	createTag(t, newStore(t, dsn), "order", 1, 10)
	createTag(t, newStore(t, moved), "order", 1, 10)
	front, address := through(t, dsn)
	s := newStore(t, address)
	if _, err := s.Claim(within(t), "mine", ""); err != nil {
		t.Fatal(err)
	}
	first, err := s.Reserve(within(t), "order", 1)
	if err != nil || first.First != 1 {
		t.Fatalf("Reserve: %+v, %v", first, err)
	}
	for _, owned := range []bool{false, true} {
		if owned {
			execute(t, moved, "INSERT INTO leaf_installation (id, store) VALUES ('theirs', 'theirs')")
		}
		front.Lead(there.Addr())
		for range 3 {
			g, err := s.Reserve(within(t), "order", 1)
			wantError(t, "Reserve elsewhere", err, allocator.ErrUnavailable)
			if err == nil {
				t.Fatalf("it reserved %v", g)
			}
		}
		if err := s.read(within(t), false, func(tag allocator.Tag) { t.Errorf("told of %+v", tag) }); err == nil {
			t.Errorf("it was read")
		}
		if n := ask[int](t, moved, "SELECT max_id FROM leaf_alloc"); n != 1 {
			t.Errorf("max_id is %d there", n)
		}
		if n := ask[int](t, moved, "SELECT COUNT(*) FROM leaf_installation WHERE id = 'mine'"); n != 0 {
			t.Errorf("it was claimed")
		}
		front.Lead(here.Addr())
		if g, err := s.Reserve(within(t), "order", 1); err != nil || g.First <= first.Last {
			t.Errorf("back again: %+v, %v", g, err)
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
	dsn := mariadb.NewDatabase(t)
	var log notes
	s := prepareStore(t, dsn, &log)
	owner, err := s.Claim(within(t), "mine", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Open(within(t)); err != nil {
		t.Fatal(err)
	}
	createTag(t, s, "order", 1, 10)
	told(t, s, true)
	execute(t, dsn, "DELETE FROM leaf_installation")
	told(t, s, false)
	if have := ask[string](t, dsn, "SELECT CONCAT(id, ' ', store) FROM leaf_installation"); have != "mine "+owner.Store {
		t.Errorf("after the row was lost it is %s", have)
	}
	if !strings.Contains(log.String(), "lost the row of leaf_installation") {
		t.Errorf("the log has %s", log.String())
	}
	other := newStore(t, dsn)
	if _, err := other.Claim(within(t), "mine", owner.Store); err != nil {
		t.Fatal(err)
	}
	told(t, other, true) // over a connection that it has from now on
	for change, s := range map[string]*Store{"id = 'theirs'": s, "id = 'mine', store = 'other'": other} {
		execute(t, dsn, "UPDATE leaf_installation SET "+change)
		err := s.read(within(t), false, func(tag allocator.Tag) { t.Errorf("told of %+v", tag) })
		wantError(t, "a reading of what is another's", err, allocator.ErrRefused)
		// That stays, whatever works.
		_, err = s.Reserve(within(t), "order", 1)
		wantError(t, "Reserve", err, allocator.ErrRefused)
		wantError(t, "Err", s.Err(), allocator.ErrRefused)
		execute(t, dsn, "UPDATE leaf_installation SET id = 'mine', store = '"+owner.Store+"'")
	}
}

// TestRestoreBeside: a restore creates leaf_installation and then writes its row. Who reads the
// table in between must not write it first.
func TestRestoreBeside(t *testing.T) {
	t.Parallel()
	dsn := mariadb.NewDatabase(t)
	p, slow := through(t, dsn)
	s := prepareStore(t, slow, io.Discard)
	owner, err := s.Claim(within(t), "mine", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Open(within(t)); err != nil {
		t.Fatal(err)
	}
	told(t, s, true) // over a connection that it has from now on
	execute(t, dsn, "DELETE FROM leaf_installation")
	looks := 0
	p.OnRequest(func(data []byte) proxy.Action {
		switch {
		case !bytes.Contains(data, []byte("leaf_installation")):
		case bytes.Contains(data, []byte("INSERT")):
			t.Errorf("it is written after %d looks", looks)
		default:
			if looks++; looks == 2 {
				execute(t, dsn, "INSERT INTO leaf_installation (id, store) VALUES ('mine', '"+owner.Store+"')")
			}
		}
		return proxy.Forward
	})
	told(t, s, false)
	if looks != 2 {
		t.Errorf("%d looks", looks)
	}
}
