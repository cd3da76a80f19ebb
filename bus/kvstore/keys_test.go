package kvstore

import (
	"context"
	"encoding/json"
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
	"github.com/leafbus/leafbus/internal/testkit"
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
		for range 100 {
			id, err := newStore(t, s).number(t)
			if err != nil || seen[id] || id < 1 || id > 999_999_999 {
				t.Fatalf("round %d: ID %d, %v; before: %v", round, id, err, seen[id])
			}
			seen[id] = true
			if len(seen)%50 != 0 {
				continue
			}
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

// A limit is refused, also if only that changes. The domain is the limit.
func TestOpaqueHasNoLimit(t *testing.T) {
	t.Parallel()
	store := newStore(t, natskit.Start(t))
	mustCreate(t, store, opaqueTag(t, "coupon", "d9"))
	for _, at := range []allocator.Limit{0, 5, 999_999_999, 1 << 60} {
		if made, err := store.Update(t.Context(), "coupon", allocator.Change{RulesChange: allocator.RulesChange{Limit: &at}}); !errors.Is(err, allocator.ErrBadValue) {
			t.Errorf("limit %d: %+v, %v", at, made, err)
		}
		if _, err := allocator.NewRules(allocator.RulesChange{Limit: &at}, allocator.OpaqueOrder("63"), 10); !errors.Is(err, allocator.ErrBadValue) {
			t.Errorf("limit %d of a new tag: %v", at, err)
		}
	}
	near := int64(799_999_995)
	if _, err := store.Update(t.Context(), "coupon", allocator.Change{MaxID: &near}); err != nil {
		t.Fatal(err)
	}
	if g, err := store.Reserve(t.Context(), "coupon", 1, 1); err != nil || !g.Ending {
		t.Errorf("80 %% of the domain: %+v, %v; want an alert", g, err)
	}
	end := int64(999_999_995)
	if _, err := store.Update(t.Context(), "coupon", allocator.Change{MaxID: &end}); err != nil {
		t.Fatal(err)
	}
	g, err := store.Reserve(t.Context(), "coupon", 1, 1)
	if err != nil || g.First != end || g.Last != 999_999_999 {
		t.Errorf("the last numbers: %+v, %v", g, err)
	}
	if g, err := store.Reserve(t.Context(), "coupon", 1, 1); !errors.Is(err, allocator.ErrExhausted) {
		t.Errorf("above the domain: %+v, %v", g, err)
	}
}

// Nobody can write over a key, or remove it.
func TestKeyIsWrittenOnce(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	mustCreate(t, newStore(t, s), opaqueTag(t, "coupon", "53"))
	js := newConfig(t, s).JS
	kv, err := js.KeyValue(t.Context(), bus.BucketKeys)
	if err != nil {
		t.Fatal(err)
	}
	before, err := kv.Get(t.Context(), "coupon")
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), streamOf(bus.BucketKeys))
	if err != nil {
		t.Fatal(err)
	}
	for what, attack := range map[string]func() error{
		"put":     func() error { _, err := kv.Put(t.Context(), "coupon", []byte("x")); return err },
		"update":  func() error { _, err := kv.Update(t.Context(), "coupon", []byte("x"), before.Revision()); return err },
		"delete":  func() error { return kv.Delete(t.Context(), "coupon") },
		"purge":   func() error { return kv.Purge(t.Context(), "coupon") },
		"message": func() error { return stream.DeleteMsg(t.Context(), before.Revision()) },
		"stream":  func() error { return stream.Purge(t.Context()) },
		"edit": func() error {
			cfg := stream.CachedInfo().Config
			cfg.DenyDelete, cfg.DenyPurge = false, false
			_, err := js.UpdateStream(t.Context(), cfg)
			return err
		},
	} {
		if err := attack(); err == nil {
			t.Errorf("%s is allowed", what)
		}
	}
	if after, err := kv.Get(t.Context(), "coupon"); err != nil || string(after.Value()) != string(before.Value()) {
		t.Errorf("the key has changed: %v", err)
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
	if _, err := openBucket(t.Context(), newConfig(t, s), bus.BucketKeys, "by hand"); err != nil {
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

// Records and keys are restored from before a tag was made, while one generator still has its key. Another one, which knows nothing, makes
// the tag again with a second key, or as another kind. The first one sees that at its next reservation or by its watch, and makes no more
// IDs: two keys would make one ID of two numbers. With the right records it goes on.
func TestAnotherKeyThanInMemory(t *testing.T) {
	t.Parallel()
	for what, again := range map[string]allocator.Tag{
		"another key":    opaqueTag(t, "coupon", "d9"),
		"another domain": opaqueTag(t, "coupon", "d10"),
		"a trend tag":    {Name: "coupon", MaxID: 1, Step: 10},
		"a strict tag":   {Name: "coupon", MaxID: 1, Order: allocator.Strict},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := natskit.Start(t)
			old := newStore(t, s)
			mustCreate(t, old, opaqueTag(t, "order", "d9")) // so that there is something to restore
			before := []func(){saveBucket(t, newConfig(t, s), bus.BucketTags), saveBucket(t, newConfig(t, s), bus.BucketKeys)}
			mustCreate(t, old, opaqueTag(t, "coupon", "d9"))
			watching := newStore(t, s)
			for _, store := range []*Store{old, watching} {
				if _, err := store.number(t); err != nil {
					t.Fatal(err)
				}
			}
			right := []func(){saveBucket(t, newConfig(t, s), bus.BucketTags), saveBucket(t, newConfig(t, s), bus.BucketKeys)}
			restore := func(buckets []func()) {
				for _, restore := range buckets {
					restore()
				}
			}

			restore(before)
			if made, err := old.Create(t.Context(), opaqueTag(t, "coupon", "d9")); !errors.Is(err, allocator.ErrConflict) {
				t.Errorf("a generator made a second key: %+v, %v", made, err)
			}
			mustCreate(t, newStore(t, s), again)
			refused := func(store *Store, how string) {
				t.Helper()
				if p, err := store.Known("coupon"); p == nil || !errors.Is(err, allocator.ErrDamaged) {
					t.Errorf("after %s the numbers in memory can still be concealed, or are IDs: %v, %v", how, p != nil, err)
				}
			}
			end := claimedEnd(t, old)
			if g, err := old.Reserve(t.Context(), "coupon", 1, 1); !errors.Is(err, allocator.ErrDamaged) || claimedEnd(t, old) != end {
				t.Errorf("numbers for the old key were reserved: %+v, %v", g, err)
			}
			refused(old, "a reservation")
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { _ = watching.Watch(ctx, func(allocator.Tag) {}) })
			defer running.Wait()
			defer stop()
			testkit.Eventually(t, "the watch sees it", func() bool { _, err := watching.Known("coupon"); return err != nil })
			refused(watching, "the watch")
			if _, err := watching.Permutation(t.Context(), "coupon"); err == nil {
				t.Error("the numbers of another generator can be concealed")
			}

			restore(right)
			if _, err := old.number(t); err != nil {
				t.Errorf("with the right records: %v", err)
			}
		})
	}
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

// A name whose record was deleted by hand, and whose key is lost, gets no second key, whatever max_id an operator gives. With its key
// it goes on.
func TestKeyOfADeletedRecord(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store := newStore(t, s)
	mustCreate(t, store, opaqueTag(t, "coupon", "63"))
	first, err := store.number(t)
	if err != nil {
		t.Fatal(err)
	}
	restore := saveBucket(t, newConfig(t, s), bus.BucketKeys)
	kv, err := store.bucket()
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Delete(t.Context(), "coupon"); err != nil {
		t.Fatal(err)
	}
	loseKeys(t, s)
	again := opaqueTag(t, "coupon", "63")
	for _, again.MaxID = range []int64{1, 1000} {
		if made, err := newStore(t, s).Create(t.Context(), again); !errors.Is(err, allocator.ErrConflict) {
			t.Errorf("from %d on: %+v, %v", again.MaxID, made, err)
		}
	}
	restore()
	mustCreate(t, newStore(t, s), again)
	second, err := newStore(t, s).number(t)
	if err != nil || second == first {
		t.Errorf("%d, then %d, %v", first, second, err)
	}
	other := opaqueTag(t, "coupon", "53")
	other.MaxID = 1000
	if err := kv.Delete(t.Context(), "coupon"); err != nil {
		t.Fatal(err)
	}
	if made, err := newStore(t, s).Create(t.Context(), other); !errors.Is(err, allocator.ErrApart) {
		t.Errorf("the key has another domain: %+v, %v", made, err)
	}
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

// The watch reads the key of each opaque tag, so that numbers of another generator can be concealed while JetStream is away.
func TestWatchReadsKeys(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	mustCreate(t, newStore(t, s), opaqueTag(t, "coupon", "53"))
	store := newStore(t, s)
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { _ = store.Watch(ctx, func(allocator.Tag) {}) })
	defer watching.Wait()
	defer stop()
	has := func(tag string) bool {
		p, err := store.Known(tag)
		return p != nil && err == nil
	}
	testkit.Eventually(t, "the key that was there", func() bool { return has("coupon") })
	mustCreate(t, newStore(t, s), opaqueTag(t, "gift", "63"))
	testkit.Eventually(t, "a new key", func() bool { return has("gift") })
	if has("order") {
		t.Error("a tag that does not exist has a key")
	}
}

// Versions that know no opaque tags must take the record for a damaged one: its order is one that they do not know.
func TestRecordOfAnOpaqueTag(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store := newStore(t, s)
	made := mustCreate(t, store, opaqueTag(t, "coupon", "53"))
	kv, err := store.bucket()
	if err != nil {
		t.Fatal(err)
	}
	entry, err := kv.Get(t.Context(), "coupon")
	if err != nil {
		t.Fatal(err)
	}
	var record map[string]any
	if err := json.Unmarshal(entry.Value(), &record); err != nil || record["order"] != "opaque-53" || record["key_id"] != made.KeyID || made.KeyID == "" {
		t.Errorf("%s, %v", entry.Value(), err)
	}
	key, err := store.keys.read(t.Context(), "coupon")
	if err != nil {
		t.Fatal(err)
	}
	secret, err := json.Marshal(key.Key)
	if err != nil || strings.Contains(string(entry.Value()), strings.Trim(string(secret), `"`)) || strings.Contains(string(entry.Value()), fmt.Sprintf("%x", key.Key)) {
		t.Errorf("the record shows the key (%v)", err)
	}
	for _, damage := range []string{`"opaque-54"`, `"opaque-"`, `""`, `"strict"`, `"opaque-d12"`} {
		if tag, err := decodeTag("coupon", []byte(strings.Replace(string(entry.Value()), `"opaque-53"`, damage, 1))); !errors.Is(err, allocator.ErrDamaged) {
			t.Errorf("order %s: %+v, %v", damage, tag, err)
		}
	}
}
