package kvstore

import (
	"errors"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/natskit"
)

// A range of a tag in JetStream is recorded with the generator and the time. All that reserves nothing keeps that.
func TestClaimed(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	ctx := t.Context()
	stores := map[string]*Store{"one": namedStore(t, s, "one"), "two": namedStore(t, s, "two")}
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
