package installation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
)

// marker is the record of the ledger that makes a name strict.
var marker = allocator.Entry{End: 1, Order: allocator.Strict}

func strictTag(name string) allocator.Tag {
	return allocator.Tag{Name: name, MaxID: 1, Order: allocator.Strict}
}

func trendTag(name string) allocator.Tag { return allocator.Tag{Name: name, MaxID: 1, Step: 10} }

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

// watch follows the tags until the test ends.
func watch(t *testing.T, store allocator.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			_ = store.Watch(ctx, func(allocator.Tag) {})
		}
	})
	t.Cleanup(func() { cancel(); watching.Wait() })
}

// strictRecords are the records of LEAF_TAGS.
func (s *site) strictRecords() (names []string) {
	s.t.Helper()
	kv, err := s.state().JS.KeyValue(s.t.Context(), bus.BucketTags)
	if err == nil {
		names, err = kv.Keys(s.t.Context())
	}
	if err != nil && !errors.Is(err, jetstream.ErrNoKeysFound) {
		s.t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// wantConflict demands that a name cannot have this order any more.
func wantConflict(t *testing.T, store allocator.Store, tag allocator.Tag) {
	t.Helper()
	made, err := store.Create(t.Context(), tag)
	if !errors.Is(err, allocator.ErrConflict) || errors.Is(err, allocator.ErrExists) {
		t.Errorf("%s was created in %v order: %+v, %v; want a conflict", tag.Name, tag.Order, made, err)
	}
}

// The marker of a strict tag is made before its record. Without the ledger there is neither.
func TestStrictMarkerComesFirst(t *testing.T) {
	t.Parallel()
	s, rows := withLedger(t)
	k := s.seeds(s.config())
	tags := allocator.NewOrdered(k.store, k.apart, k.Ledger)
	k.Suspend(fmt.Errorf("%w: the test", allocator.ErrUnavailable))
	if _, err := tags.Create(t.Context(), strictTag("invoice")); !errors.Is(err, allocator.ErrUnavailable) || len(s.strictRecords()) > 0 {
		t.Errorf("without the ledger: %v, with records of %v", err, s.strictRecords())
	}
	k = s.seeds(s.config())
	unopened := allocator.NewOrdered(k.store, kvstore.New(k.State), k.Ledger) // its LEAF_TAGS cannot be reached
	if _, err := unopened.Create(t.Context(), strictTag("invoice")); !errors.Is(err, allocator.ErrUnavailable) || s.entries()["invoice"] != marker {
		t.Errorf("%v; then the ledger has %+v", err, s.entries())
	}
	tags = allocator.NewOrdered(k.store, k.apart, k.Ledger)
	wantConflict(t, tags, trendTag("invoice"))
	if e, err := k.Claimed(t.Context(), "invoice"); err != nil || e.Order != allocator.Strict || e.End != 0 {
		t.Errorf("a tag that has only a marker: %+v, %v", e, err)
	}
	if made, err := tags.Create(t.Context(), strictTag("invoice")); err != nil || made.MaxID != 1 {
		t.Errorf("%+v, %v", made, err)
	}
	for range 2 { // a row that nobody has claimed of counts too, and so does a deleted one
		addTag(t, rows, "sql", 1)
		wantConflict(t, tags, strictTag("sql"))
		if _, err := rows.Delete(t.Context(), "sql", 1); err != nil {
			t.Fatal(err)
		}
		wantConflict(t, tags, strictTag("sql"))
	}
	if e := s.entries(); e["sql"] != (allocator.Entry{}) || !slices.Equal(s.strictRecords(), []string{"invoice"}) {
		t.Errorf("the ledger has %+v, LEAF_TAGS has %v", e, s.strictRecords())
	}
	addTag(t, rows, "order", 1) // after a claim, the ledger alone says it
	if _, err := tags.Reserve(t.Context(), "order", 1, 1); err != nil {
		t.Fatal(err)
	}
	rows.Restore(nil)
	wantConflict(t, tags, strictTag("order"))
}

// Two generators create a name at once, in different order. One of the orders wins. No ID comes from both stores.
func TestOneOrderWins(t *testing.T) {
	t.Parallel()
	s, _ := withLedger(t)
	members := []allocator.Store{s.ordered().Store, s.ordered().Store}
	wins := make(map[allocator.Order]int)
	for round := range 150 {
		name := fmt.Sprint("t", round)
		var made [2]error
		var both sync.WaitGroup
		var ids allocatortest.Checker
		var mu sync.Mutex
		orders := make(map[allocator.Order]bool)
		for i, tag := range []allocator.Tag{strictTag(name), trendTag(name)} {
			both.Go(func() {
				if round%3 == i { // so that each is first sometimes
					time.Sleep(time.Duration(round) * 10 * time.Microsecond)
				}
				_, made[i] = members[i].Create(t.Context(), tag)
				for range 3 {
					g, err := members[i].Reserve(t.Context(), name, 2, 1)
					if err != nil {
						continue // a conflict, or the other one has not made the tag yet
					}
					ids.Add(g.Range)
					mu.Lock()
					orders[g.Order] = true
					mu.Unlock()
				}
			})
		}
		both.Wait()
		for _, store := range members {
			g, err := store.Reserve(t.Context(), name, 2, 1)
			for errors.Is(err, allocator.ErrConflict) {
				g, err = store.Reserve(t.Context(), name, 2, 1)
			}
			if err != nil {
				t.Fatalf("%s: %v; it was created with %v", name, err, made)
			}
			ids.Add(g.Range)
			orders[g.Order] = true
		}
		winner, loser := allocator.Strict, made[1]
		if made[1] == nil {
			winner, loser = allocator.Trend, made[0]
		}
		wins[winner]++
		if _, err := ids.Check(); err != nil || len(orders) != 1 || !orders[winner] || !errors.Is(loser, allocator.ErrConflict) {
			t.Fatalf("%s: created with %v, served in %v, %v", name, made, orders, err)
		}
	}
	t.Logf("wins: %v", wins)
	if wins[allocator.Strict] == 0 || wins[allocator.Trend] == 0 {
		t.Errorf("one order won always (%v): that shows little", wins)
	}
}

// A ledger that was lost gets the markers of all strict tags back, also of deleted ones, and whatever rows the database has.
func TestSeedOfStrictTags(t *testing.T) {
	t.Parallel()
	s, rows := withLedger(t)
	cfg := s.ordered()
	for _, name := range []string{"invoice", "gone", "shadowed"} {
		if _, err := cfg.Store.Create(t.Context(), strictTag(name)); err != nil {
			t.Fatal(err)
		}
	}
	g, err := cfg.Store.Reserve(t.Context(), "gone", 7, 1)
	if err != nil || g.First != 1 {
		t.Fatalf("%v, %v", g, err)
	}
	if _, err := cfg.Store.Delete(t.Context(), "gone", 8); err != nil {
		t.Fatal(err)
	}
	addTag(t, rows, "order", 501)
	addTag(t, rows, "shadowed", 501)
	if err := s.state().JS.DeleteKeyValue(t.Context(), bus.BucketLedger); err != nil {
		t.Fatal(err)
	}
	want := map[string]allocator.Entry{"invoice": marker, "gone": marker, "shadowed": marker, "order": {End: 501, Floor: 501}}
	testkit.Eventually(t, "the ledger is filled again", func() bool { return maps.Equal(s.entries(), want) && cfg.Ledger.Err() == nil })
	other := s.ordered().Store // it knows only what is written
	for _, name := range []string{"invoice", "gone", "shadowed"} {
		wantConflict(t, other, trendTag(name))
	}
	made, err := other.Create(t.Context(), strictTag("gone"))
	if err != nil || made.MaxID != 8 {
		t.Errorf("%+v, %v", made, err)
	}
	if g, err := other.Reserve(t.Context(), "shadowed", 1, 1); err != nil || g.Order != allocator.Strict || g.First != 1 {
		t.Errorf("a strict tag beside a row of its name: %+v, %v", g, err)
	}
}

// JetStream lost LEAF_TAGS, in which strict tags were. No strict tag is created at 1, and the generators say why. The tags in the database
// are served.
func TestStrictTagsLost(t *testing.T) {
	t.Parallel()
	s, rows := withLedger(t)
	cfg := s.ordered()
	addTag(t, rows, "order", 1)
	if _, err := cfg.Store.Create(t.Context(), strictTag("invoice")); err != nil {
		t.Fatal(err)
	}
	if err := cfg.StoreErr(); err != nil {
		t.Errorf("before: %v", err)
	}
	if err := s.state().JS.DeleteKeyValue(t.Context(), bus.BucketTags); err != nil {
		t.Fatal(err)
	}
	again := s.ordered() // a generator that starts makes the bucket again
	watch(t, again.Store)
	for _, c := range []generator.Config{cfg, again} {
		for _, name := range []string{"invoice", "new"} {
			if made, err := c.Store.Create(t.Context(), strictTag(name)); !errors.Is(err, allocator.ErrUnavailable) {
				t.Errorf("%s was created: %+v, %v", name, made, err)
			}
		}
		wantConflict(t, c.Store, trendTag("invoice"))
		if g, err := c.Store.Reserve(t.Context(), "order", 1, 1); err != nil {
			t.Errorf("a tag in the database: %v, %v", g, err)
		}
	}
	testkit.Eventually(t, "the generator says why", func() bool { return errors.Is(again.StoreErr(), allocator.ErrUnavailable) })
	known := strictTag("invoice")
	known.MaxID = 1000
	if made, err := again.Store.Create(t.Context(), known); err != nil || made.MaxID != 1000 {
		t.Errorf("an operator knows a safe max_id: %+v, %v", made, err)
	}
}

// A row with the name of a strict tag is not served. It is reported once, and so is its end.
func TestShadowedRow(t *testing.T) {
	t.Parallel()
	s, rows := withLedger(t)
	cfg := s.ordered()
	var mu sync.Mutex
	var said []string
	cfg.Ledger.OnShadow(func(tag string, is bool) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, fmt.Sprint(tag, " ", is))
	})
	heard := func(want ...string) {
		t.Helper()
		testkit.Eventually(t, fmt.Sprint("it says ", want), func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Equal(said, want)
		})
	}
	for _, name := range []string{"before", "invoice"} {
		if _, err := cfg.Store.Create(t.Context(), strictTag(name)); err != nil {
			t.Fatal(err)
		}
	}
	addTag(t, rows, "before", 501) // the generator does not watch yet
	watch(t, cfg.Store)
	heard("before true")
	addTag(t, rows, "invoice", 501)
	heard("before true", "invoice true")
	step := int64(20)
	if _, err := rows.Update(t.Context(), "invoice", allocator.Change{Step: &step}); err != nil { // is no news
		t.Fatal(err)
	}
	for _, name := range []string{"before", "invoice"} {
		if g, err := cfg.Store.Reserve(t.Context(), name, 3, 1); err != nil || g.Order != allocator.Strict || g.First != 1 || g.Len() != 3 {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
		if got, err := cfg.Store.Get(t.Context(), name); err != nil || got.Order != allocator.Strict || got.MaxID != 4 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := cfg.Store.Delete(t.Context(), "before", 1); err != nil { // the tag, not the row
		t.Fatal(err)
	}
	if _, err := rows.Delete(t.Context(), "invoice", 1); err != nil {
		t.Fatal(err)
	}
	heard("before true", "invoice true", "invoice false")
	if g, err := cfg.Store.Reserve(t.Context(), "before", 3, 1); !errors.Is(err, allocator.ErrDeleted) {
		t.Errorf("the row of a deleted strict tag is served: %+v, %v", g, err)
	}
	if _, err := rows.Delete(t.Context(), "before", 1); err != nil {
		t.Fatal(err)
	}
	heard("before true", "invoice true", "invoice false", "before false")
}

// Tags of both orders come in one list, sorted and in pages. A row with the name of a strict tag is not in it.
func TestListOfBothOrders(t *testing.T) {
	t.Parallel()
	s, rows := withLedger(t)
	cfg := s.ordered()
	var want []string
	for i := range 15 {
		name := fmt.Sprintf("t%02d", i)
		want = append(want, name)
		tag := trendTag(name)
		if i%4 == 0 || i > 10 {
			tag = strictTag(name)
		}
		if _, err := cfg.Store.Create(t.Context(), tag); err != nil {
			t.Fatal(err)
		}
		if i%8 == 0 {
			addTag(t, rows, name, 501)
		}
	}
	if _, err := cfg.Store.Create(t.Context(), strictTag("other")); err != nil {
		t.Fatal(err)
	}
	for limit := 1; limit <= len(want)+1; limit++ {
		var got []string
		for after := ""; ; {
			page, err := cfg.Store.List(t.Context(), allocator.Query{Prefix: "t", After: after, Limit: limit})
			if err != nil || len(page) > limit || len(got) > len(want) {
				t.Fatalf("%v, %v", page, err)
			}
			for _, tag := range page {
				got = append(got, tag.Name)
				if tag.MaxID != 1 {
					t.Errorf("%+v is the row of a strict tag", tag)
				}
			}
			if len(page) < limit {
				break
			}
			after = page[limit-1].Name
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %v, want %v", limit, got, want)
		}
	}
}
