package schema

import (
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/tests/mariadb"
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
	told(t, s, true)
	if n := ask[int](t, dsn, "SELECT COUNT(*) FROM leaf_installation"); n != 0 {
		t.Errorf("it was claimed in another's name")
	}
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
	for _, change := range []string{"SET id = 'theirs'", "SET id = 'mine', store = 'other'"} {
		execute(t, dsn, "UPDATE leaf_installation "+change)
		err := s.read(within(t), false, func(tag allocator.Tag) { t.Errorf("told of %+v", tag) })
		wantError(t, "a reading of what is another's", err, allocator.ErrRefused)
		wantError(t, "Err", s.Err(), allocator.ErrRefused)
	}
	execute(t, dsn, "UPDATE leaf_installation SET store = '"+owner.Store+"'")
	told(t, s, false)
	if s.Err() != nil {
		t.Errorf("Err: %v", s.Err())
	}
}
