package kvstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/natskit"
)

// opaqueTag is a new tag, as an operator's request makes it.
func opaqueTag(t testing.TB, name string, d opaque.Domain) allocator.Tag {
	t.Helper()
	order := allocator.OpaqueOrder(d)
	rules, err := allocator.NewRules(allocator.RulesChange{}, order, 10)
	if err != nil {
		t.Fatal(err)
	}
	return allocator.Tag{Name: name, MaxID: 1, Step: 10, Order: order, Rules: rules}
}

// number reserves numbers of coupon, and returns the ID of the first.
func (s *Store) number(t testing.TB) (id int64, err error) {
	t.Helper()
	g, err := s.Reserve(t.Context(), "coupon", 1, 1)
	for late(t.Context(), err) {
		g, err = s.Reserve(t.Context(), "coupon", 1, 1)
	}
	if err != nil {
		return 0, err
	}
	p, err := s.Known("coupon")
	if p == nil || err != nil {
		t.Fatalf("numbers came before the key (%v)", err)
	}
	return p.Conceal(g.First), nil
}

func mustCreate(t testing.TB, s *Store, tag allocator.Tag) allocator.Tag {
	t.Helper()
	made, err := s.Create(t.Context(), tag)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// loseKeys removes the bucket of the keys, as a restore that forgets it would.
func loseKeys(t testing.TB, s *embedded.Server) {
	t.Helper()
	if err := newConfig(t, s).JS.DeleteStream(t.Context(), streamOf(bus.BucketKeys)); err != nil {
		t.Fatal(err)
	}
}

// The kind and the domain of a tag are for life. So is its key: a tag that is created again goes on with it, and no ID comes twice.
func TestOpaqueIsForLife(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store := newStore(t, s)
	mustCreate(t, store, opaqueTag(t, "coupon", "d9"))
	seen := make(map[int64]bool)
	for round := range 3 {
		for range 5 {
			id, err := newStore(t, s).number(t)
			if err != nil || seen[id] || id < 1 || id > 999_999_999 {
				t.Fatalf("round %d: ID %d, %v; before: %v", round, id, err, seen[id])
			}
			seen[id] = true
			for _, other := range []allocator.Tag{opaqueTag(t, "coupon", "d10"), opaqueTag(t, "coupon", "63"),
				{Name: "coupon", MaxID: 1, Step: 10}, {Name: "coupon", MaxID: 1, Order: allocator.Strict}} {
				made, err := store.Create(t.Context(), other)
				if !errors.Is(err, allocator.ErrConflict) || errors.Is(err, allocator.ErrExists) || !strings.Contains(err.Error(), "an opaque tag with the domain d9") {
					t.Errorf("coupon was created with the order %s: %+v, %v", other.Order, made, err)
				}
			}
		}
		if _, err := store.Delete(t.Context(), "coupon", 1); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Create(t.Context(), allocator.Tag{Name: "coupon", MaxID: 1, Step: 10}); !errors.Is(err, allocator.ErrApart) {
			t.Errorf("a plain tag after the deletion: %v", err)
		}
		mustCreate(t, store, opaqueTag(t, "coupon", "d9"))
	}
	mustCreate(t, store, allocator.Tag{Name: "order", MaxID: 1, Step: 10})
	if _, err := store.Create(t.Context(), opaqueTag(t, "order", "53")); !errors.Is(err, allocator.ErrConflict) || errors.Is(err, allocator.ErrExists) {
		t.Errorf("a plain tag became opaque: %v", err)
	}
	if _, err := store.keys.read(t.Context(), "order"); !errors.Is(err, errNoKey) {
		t.Errorf("a refused creation made a key: %v", err)
	}
}

// The domain of an opaque tag is its limit.
func TestOpaqueDomainEnds(t *testing.T) {
	t.Parallel()
	store := newStore(t, natskit.Start(t))
	mustCreate(t, store, opaqueTag(t, "coupon", "d9"))
	for _, c := range []struct {
		from, last int64
		ending     bool
	}{{799_999_995, 800_000_004, true}, {999_999_995, 999_999_999, false}} {
		if _, err := store.Update(t.Context(), "coupon", allocator.Change{MaxID: &c.from}); err != nil {
			t.Fatal(err)
		}
		if g, err := store.Reserve(t.Context(), "coupon", 1, 1); err != nil || g.First != c.from || g.Last != c.last || g.Ending != c.ending {
			t.Errorf("from %d on: %+v, %v", c.from, g, err)
		}
	}
	if g, err := store.Reserve(t.Context(), "coupon", 1, 1); !errors.Is(err, allocator.ErrExhausted) {
		t.Errorf("above the domain: %+v, %v", g, err)
	}
}

// A tag whose key is lost is refused by each generator that does not have it in memory, and gets no other key. One that has it goes on. The
// bucket comes back from a backup, and all go on.
func TestLostKeys(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	old, gone := newStore(t, s), opaqueTag(t, "gone", "53")
	mustCreate(t, old, opaqueTag(t, "coupon", "53"))
	mustCreate(t, old, gone)
	if _, err := old.Delete(t.Context(), "gone", 1); err != nil {
		t.Fatal(err)
	}
	first, err := old.number(t)
	if err != nil {
		t.Fatal(err)
	}
	restore := saveBucket(t, newConfig(t, s), bus.BucketKeys)
	loseKeys(t, s)

	second, err := old.number(t)
	if err != nil || second == first {
		t.Errorf("a generator with the key in memory: %d, %v", second, err)
	}
	other := newStore(t, s)
	refused := func(what string) {
		t.Helper()
		end := claimedEnd(t, other)
		if id, err := other.number(t); !errors.Is(err, allocator.ErrDamaged) || !strings.Contains(err.Error(), "LEAF_KEYS") {
			t.Errorf("%s: %d, %v", what, id, err)
		}
		if now := claimedEnd(t, other); now != end {
			t.Errorf("%s: numbers were reserved up to %d, which nobody can use", what, now)
		}
		for _, name := range []string{"coupon", "gone"} {
			if made, err := other.Create(t.Context(), opaqueTag(t, name, "53")); !errors.Is(err, allocator.ErrConflict) && !errors.Is(err, allocator.ErrExists) {
				t.Errorf("%s: %s was created: %+v, %v", what, name, made, err)
			}
		}
	}
	refused("no bucket")
	for what, store := range map[string]*Store{"with the key in memory": old, "without it": other} {
		if made, err := store.Create(t.Context(), opaqueTag(t, "new", "53")); !errors.Is(err, allocator.ErrUnavailable) || !strings.Contains(err.Error(), "docs/security.md") {
			t.Errorf("%s: a new opaque tag: %+v, %v", what, made, err)
		}
		mustCreate(t, store, allocator.Tag{Name: "order" + fmt.Sprint(store == old), MaxID: 1, Step: 10})
	}
	if _, err := newConfig(t, s).JS.Stream(t.Context(), streamOf(bus.BucketKeys)); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("a refused creation made a bucket, which is in the way of a restore: %v", err)
	}
	if _, err := openBucket(t.Context(), newConfig(t, s), bus.BucketKeys, "by hand", smallBytes); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, other, opaqueTag(t, "new", "53"))
	refused("a new bucket")
	for _, name := range []string{"coupon", "gone"} {
		if _, err := other.keys.read(t.Context(), name); !errors.Is(err, errNoKey) {
			t.Errorf("%s has a second key (%v)", name, err)
		}
	}
	for _, name := range []string{"coupon", "gone"} { // as if a read had missed the records
		if _, err := other.keys.make(t.Context(), name, "53"); err != nil {
			t.Fatal(err)
		}
	}
	refused("another key")

	restore()
	third, err := newStore(t, s).number(t)
	if err != nil || third == first || third == second {
		t.Errorf("after the restore: %d, %v; before came %d and %d", third, err, first, second)
	}
	mustCreate(t, newStore(t, s), gone)
}

// claimedEnd is how far coupon was reserved.
func claimedEnd(t testing.TB, s *Store) int64 {
	t.Helper()
	e, err := s.Claimed(t.Context(), "coupon")
	if err != nil {
		t.Fatal(err)
	}
	return e.End
}

// Many generators create a tag at once: one does, and all use one key.
func TestOneKeyForAll(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	var creating sync.WaitGroup
	var mu sync.Mutex
	made, ids := 0, make(map[int64]bool)
	stores := make([]*Store, 8)
	for i := range stores {
		stores[i] = newStore(t, s)
	}
	for _, store := range stores {
		tag := opaqueTag(t, "coupon", "d18")
		creating.Go(func() {
			_, err := store.Create(context.Background(), tag)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made++
			} else if !errors.Is(err, allocator.ErrExists) {
				t.Error(err)
			}
		})
	}
	creating.Wait()
	if made != 1 {
		t.Errorf("%d generators created the tag", made)
	}
	for _, store := range stores {
		id, err := store.number(t)
		if err != nil || ids[id] {
			t.Errorf("%d, %v; before: %v", id, err, ids[id])
		}
		ids[id] = true
	}
}
