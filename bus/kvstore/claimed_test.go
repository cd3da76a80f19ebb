package kvstore

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
)

// A range of a tag in JetStream is recorded with the generator and the time. All that reserves nothing keeps that.
func TestClaimed(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	ctx := t.Context()
	stores := make(map[string]*Store)
	for _, node := range []string{"one", "two"} {
		cfg := newConfig(t, s)
		cfg.Node = node
		stores[node] = New(cfg)
		if err := stores[node].Open(ctx); err != nil {
			t.Fatal(err)
		}
	}
	one, two := stores["one"], stores["two"]
	claimed := func(what string, end int64, last allocator.Claim) {
		t.Helper()
		for _, s := range stores {
			if e, err := s.Claimed(ctx, "order"); err != nil || e.End != end || e.Last != last || e.Revision == 0 {
				t.Errorf("after %s: %+v, %v; want the end %d and the last claim %+v", what, e, err, end, last)
			}
		}
	}
	if e, err := one.Claimed(ctx, "order"); err != nil || e != (allocator.Entry{}) {
		t.Errorf("before the tag exists: %+v, %v", e, err)
	}
	if _, err := one.Create(ctx, allocator.Tag{Name: "order", MaxID: 1, Step: 10}); err != nil {
		t.Fatal(err)
	}
	claimed("the creation", 1, allocator.Claim{})
	var last allocator.Claim
	for _, node := range []string{"one", "two", "two", "one"} {
		before := allocator.Now()
		g, err := stores[node].Reserve(ctx, "order", 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		e, err := two.Claimed(ctx, "order")
		if last = e.Last; err != nil || last.Time.Before(before) || last.Time.After(time.Now()) {
			t.Errorf("%+v, %v; it was claimed after %v", e, err, before)
		}
		claimed("a claim", g.Last+1, allocator.Claim{First: g.First, Last: g.Last, Node: node, Time: last.Time})
	}

	to, step, text := int64(500), int64(20), "orders"
	if _, err := two.Update(ctx, "order", allocator.Change{MaxID: &to, Step: &step, Description: &text}); err != nil {
		t.Fatal(err)
	}
	claimed("a change", 500, last)
	var advanced *allocator.AdvancedError
	if _, err := two.Reserve(ctx, "order", 1, 1000); !errors.As(err, &advanced) {
		t.Fatalf("Reserve far above max_id: %v", err)
	}
	claimed("max_id was moved up", 1000, last)
	if _, err := two.Delete(ctx, "order", 2000); err != nil {
		t.Fatal(err)
	}
	claimed("the deletion", 2000, last)
	if _, err := two.Create(ctx, allocator.Tag{Name: "order", MaxID: 1, Step: 10}); err != nil {
		t.Fatal(err)
	}
	claimed("the tag was created again", 2000, last)
}

// Only what says how far the tag is can damage its record: the last claim decides nothing.
func TestClaimedDamaged(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store := newStore(t, s)
	kv, err := newConfig(t, s).JS.KeyValue(t.Context(), bus.BucketTags)
	if err != nil {
		t.Fatal(err)
	}
	put := func(kv jetstream.KeyValue, record string) {
		t.Helper()
		if _, err := kv.PutString(t.Context(), "order", record); err != nil {
			t.Fatal(err)
		}
	}
	put(kv, `{"tag":"order","max_id":"x","step":10}`)
	if e, err := store.Claimed(t.Context(), "order"); !errors.Is(err, allocator.ErrDamaged) || e != (allocator.Entry{}) {
		t.Errorf("a damaged record: %+v, %v", e, err)
	}
	for _, last := range badClaims {
		put(kv, `{"tag":"order","max_id":"11","step":10,"last":`+last+`}`)
		if e, err := store.Claimed(t.Context(), "order"); err != nil || e.End != 11 || e.Last != (allocator.Claim{}) {
			t.Errorf("with the last claim %s: %+v, %v", last, e, err)
		}
		if e, err := decodeEntry("order", []byte(`{"end":"11","last":`+last+`}`), 5); err != nil || e != (allocator.Entry{End: 11, Revision: 5}) {
			t.Errorf("in the ledger, with the last claim %s: %+v, %v", last, e, err)
		}
	}
	want := allocator.Claim{First: 1, Last: 10, Node: "one"}
	if e, err := decodeEntry("order", []byte(`{"end":"11","last":{"first":"1","last":"10","node":"one","later":"versions"}}`), 5); err != nil || e.Last != want {
		t.Errorf("a claim with one more field: %+v, %v", e, err)
	}
	if g, err := store.Reserve(t.Context(), "order", 1, 1); err != nil || g.First != 11 {
		t.Errorf("with a bad last claim Reserve returned %v, %v", g.Range, err)
	}
}

// badClaims are last claims that nobody can have written.
var badClaims = []string{
	`null`, `"x"`, `[]`, `{"first":1,"last":10}`, `{"first":"1","last":"10","node":"one","time":"yesterday"}`, `{"first":"9223372036854775808"}`,
}
