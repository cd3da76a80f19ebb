package installation

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
)

// marker is the record of the ledger that makes a name strict.
var marker = allocator.Entry{End: 1, Order: allocator.Strict}

func strictTag(name string) allocator.Tag {
	return allocator.Tag{Name: name, MaxID: 1, Order: allocator.Strict}
}

func trendTag(name string) allocator.Tag { return allocator.Tag{Name: name, MaxID: 1, Step: 10} }

func opaqueTag(t *testing.T, name string, d opaque.Domain) allocator.Tag {
	t.Helper()
	order := allocator.OpaqueOrder(d)
	rules, err := allocator.NewRules(allocator.RulesChange{}, order, 10)
	if err != nil {
		t.Fatal(err)
	}
	return allocator.Tag{Name: name, MaxID: 1, Step: 10, Order: order, Rules: rules}
}

// ordered runs what a generator with a database has of the installation, and waits until claims are possible.
func (s *site) ordered() generator.Config {
	s.t.Helper()
	cfg, err := s.config().Generator(generator.Config{Snowflake: snowflake.Config{Layout: s.layout, LastWorker: s.layout.Workers() - 1}})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := cfg.Join(s.t.Context(), mayBegin); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	var keeping sync.WaitGroup
	keeping.Go(func() { cfg.Ledger.Keep(ctx, mayBegin, func(string) {}) })
	s.t.Cleanup(func() { cancel(); keeping.Wait() })
	if err := cfg.Open(testkit.Context(s.t)); err != nil {
		s.t.Fatal(err)
	}
	return cfg
}

// makes makes a tag, which must succeed.
func makes(t *testing.T, store allocator.Store, tag allocator.Tag) allocator.Tag {
	t.Helper()
	made, err := store.Create(t.Context(), tag)
	if err != nil {
		t.Fatalf("%s: %v", tag.Name, err)
	}
	return made
}

// wantConflict demands that a name cannot have this order any more.
func wantConflict(t *testing.T, store allocator.Store, tag allocator.Tag) {
	t.Helper()
	made, err := store.Create(t.Context(), tag)
	if !errors.Is(err, allocator.ErrConflict) || errors.Is(err, allocator.ErrExists) {
		t.Errorf("%s was created in %v order: %+v, %v; want a conflict", tag.Name, tag.Order, made, err)
	}
}

// Strict and opaque tags live in JetStream beside a database. A ledger that was lost gets the markers of all of them
// back, also of deleted ones, and whatever rows the database has: a name keeps its order, domain and key.
func TestLostLedgerKeepsOrders(t *testing.T) {
	t.Parallel()
	s, rows := withLedger(t)
	cfg := s.ordered()
	addTag(t, rows, "order", 501)
	wantConflict(t, cfg.Store, opaqueTag(t, "order", "53"))
	wantConflict(t, cfg.Store, strictTag("order"))
	for _, tag := range []allocator.Tag{
		strictTag("invoice"), strictTag("gone"), strictTag("shadowed"), opaqueTag(t, "coupon", "53"), opaqueTag(t, "gone.coupon", "53"),
	} {
		makes(t, cfg.Store, tag)
	}
	key, err := cfg.Keys.Permutation(t.Context(), "gone.coupon")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gone", "gone.coupon"} {
		if g, err := cfg.Store.Reserve(t.Context(), name, 7, 1); err != nil || g.First != 1 {
			t.Fatalf("%v, %v", g, err)
		}
		if _, err := cfg.Store.Delete(t.Context(), name, 8); err != nil {
			t.Fatal(err)
		}
	}
	addTag(t, rows, "shadowed", 501)
	if err := s.state().JS.DeleteKeyValue(t.Context(), bus.BucketLedger); err != nil {
		t.Fatal(err)
	}
	opaqueMarker := allocator.Entry{End: 1, Order: "opaque-53"}
	want := map[string]allocator.Entry{"invoice": marker, "gone": marker, "shadowed": marker,
		"coupon": opaqueMarker, "gone.coupon": opaqueMarker, "order": {End: 501, Floor: 501}}
	testkit.Eventually(t, "the ledger is filled again", func() bool {
		_, err := cfg.Store.Create(t.Context(), trendTag("invoice")) // which meets the loss, so that it is noticed at once
		return err != nil && maps.Equal(s.entries(), want) && cfg.Ledger.Err() == nil
	})

	other := s.ordered() // it knows only what is written
	for _, name := range []string{"invoice", "gone", "shadowed"} {
		wantConflict(t, other.Store, trendTag(name))
	}
	for _, name := range []string{"coupon", "gone.coupon"} {
		for _, tag := range []allocator.Tag{trendTag(name), strictTag(name), opaqueTag(t, name, "63")} {
			wantConflict(t, other.Store, tag)
		}
	}
	if same, err := other.Keys.Permutation(t.Context(), "gone.coupon"); err != nil || same.Conceal(5) != key.Conceal(5) {
		t.Errorf("a deleted tag has another key: %v", err)
	}
	for _, tag := range []allocator.Tag{strictTag("gone"), opaqueTag(t, "gone.coupon", "53")} {
		if made := makes(t, other.Store, tag); made.MaxID < 8 {
			t.Errorf("%+v", made)
		}
	}
	if g, err := other.Store.Reserve(t.Context(), "shadowed", 1, 1); err != nil || g.Order != allocator.Strict || g.First != 1 {
		t.Errorf("a strict tag beside a row of its name: %+v, %v", g, err)
	}
}
