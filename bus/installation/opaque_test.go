package installation

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

func opaqueTag(t *testing.T, name string, d opaque.Domain) allocator.Tag {
	t.Helper()
	order := allocator.OpaqueOrder(d)
	rules, err := allocator.NewRules(allocator.RulesChange{}, order, 10)
	if err != nil {
		t.Fatal(err)
	}
	return allocator.Tag{Name: name, MaxID: 1, Step: 10, Order: order, Rules: rules}
}

// An opaque tag lives in JetStream beside a database, and its marker in the ledger keeps its name out of the database and of other domains. A
// ledger that was lost gets the markers back.
func TestOpaqueTagsBesideADatabase(t *testing.T) {
	t.Parallel()
	s, rows := withLedger(t)
	cfg := s.ordered()
	addTag(t, rows, "order", 501)
	wantConflict(t, cfg.Store, opaqueTag(t, "order", "53"))
	for _, name := range []string{"coupon", "gone"} {
		if _, err := cfg.Store.Create(t.Context(), opaqueTag(t, name, "53")); err != nil {
			t.Fatal(err)
		}
	}
	known := func() bool { p, err := cfg.Keys.Known("coupon"); return p != nil && err == nil }
	if g, err := cfg.Store.Reserve(t.Context(), "coupon", 7, 1); err != nil || g.First != 1 || g.Order.Domain() != "53" || !known() {
		t.Fatalf("%+v, %v", g, err)
	}
	if _, err := cfg.Store.Delete(t.Context(), "gone", 8); err != nil {
		t.Fatal(err)
	}
	opaqueMarker := allocator.Entry{End: 1, Order: "opaque-53"}
	want := map[string]allocator.Entry{"coupon": opaqueMarker, "gone": opaqueMarker, "order": {End: 501, Floor: 501}}
	for _, lost := range []bool{false, true} {
		if lost {
			if err := s.state().JS.DeleteKeyValue(t.Context(), bus.BucketLedger); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, "the ledger is filled again", func() bool { return maps.Equal(s.entries(), want) && cfg.Ledger.Err() == nil })
		}
		other := s.ordered() // it knows only what is written
		for _, name := range []string{"coupon", "gone"} {
			for _, tag := range []allocator.Tag{trendTag(name), strictTag(name), opaqueTag(t, name, "63")} {
				wantConflict(t, other.Store, tag)
				if _, err := other.Store.Create(t.Context(), tag); !strings.Contains(err.Error(), "an opaque tag with the domain 53") {
					t.Errorf("%s: %v", name, err)
				}
			}
			if e, err := other.Records.Claimed(t.Context(), name); err != nil || e.Order.Domain() != "53" {
				t.Errorf("%s: %+v, %v", name, e, err)
			}
		}
		if p, err := other.Keys.Permutation(t.Context(), "gone"); err != nil || p.Conceal(5) == 5 {
			t.Errorf("the key of a deleted tag: %v", err)
		}
		if _, err := other.Keys.Permutation(t.Context(), "order"); err == nil {
			t.Error("a tag in the database has a key")
		}
	}
	made, err := cfg.Store.Create(t.Context(), opaqueTag(t, "gone", "53"))
	if err != nil || made.MaxID != 8 {
		t.Errorf("%+v, %v", made, err)
	}
}

// JetStream lost the tags and the keys. An operator's max_id revives no opaque tag: it would have another key. With the keys it does.
func TestOpaqueTagsLost(t *testing.T) {
	t.Parallel()
	s, _ := withLedger(t)
	cfg := s.ordered()
	if _, err := cfg.Store.Create(t.Context(), opaqueTag(t, "coupon", "53")); err != nil {
		t.Fatal(err)
	}
	p, err := cfg.Keys.Permutation(t.Context(), "coupon")
	if err != nil {
		t.Fatal(err)
	}
	js := s.state().JS
	if err := js.DeleteKeyValue(t.Context(), bus.BucketTags); err != nil {
		t.Fatal(err)
	}
	known := opaqueTag(t, "coupon", "53")
	known.MaxID = 1000
	again := s.ordered()
	watch(t, again.Store)
	if made, err := again.Store.Create(t.Context(), known); err != nil || made.MaxID != 1000 {
		t.Fatalf("the key is there: %+v, %v", made, err)
	}
	if same, err := again.Keys.Permutation(t.Context(), "coupon"); err != nil || same.Conceal(7) != p.Conceal(7) {
		t.Errorf("it has another key (%v)", err)
	}
	for _, bucket := range []string{bus.BucketTags, bus.BucketKeys} {
		if err := js.DeleteKeyValue(t.Context(), bucket); err != nil {
			t.Fatal(err)
		}
	}
	third := s.ordered()
	watch(t, third.Store)
	if made, err := third.Store.Create(t.Context(), known); !errors.Is(err, allocator.ErrConflict) {
		t.Errorf("the key is lost: %+v, %v", made, err)
	}
}
