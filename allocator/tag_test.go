package allocator_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/idspace"
)

// TestBadTag: such a tag reaches neither memory nor the store.
func TestBadTag(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		a := start(t, allocator.Config{Records: s})
		for _, tag := range []string{"", "a b", "*", strings.Repeat("x", 129)} {
			if ranges, err := a.Take(t.Context(), tag, 1); !errors.Is(err, idspace.ErrBadTag) || ranges != nil {
				t.Errorf("Take(%q) = %v, %v", tag, ranges, err)
			}
			a.Push(allocator.Stored{Tag: allocator.Tag{Name: tag}})
		}
		if a.Tags() != 0 || len(s.reserves()) != 0 {
			t.Errorf("%d tags in memory, writes %v", a.Tags(), s.reserves())
		}
	})
}

func TestCheckValues(t *testing.T) {
	for _, c := range []struct {
		step, most int64
		ok         bool
	}{{1, 1, true}, {1, 100, true}, {100, 100, true}, {101, 100, false}, {0, 100, false}, {-1, 100, false}, {-1 << 63, 100, false}} {
		if err := allocator.CheckStep(c.step, c.most); (err == nil) != c.ok || err != nil && !errors.Is(err, idspace.ErrBadValue) {
			t.Errorf("CheckStep(%d, %d): %v", c.step, c.most, err)
		}
	}
	for text, ok := range map[string]bool{
		"": true, "täglich\nneu": true, strings.Repeat("ä", 256): true,
		strings.Repeat("a", 257): false, "a\x00": false, "\xff": false,
	} {
		if err := allocator.CheckDescription(text); (err == nil) != ok || err != nil && !errors.Is(err, idspace.ErrBadValue) {
			t.Errorf("CheckDescription(%.20q): %v", text, err)
		}
	}
}

// What a tag loses by a typo is asked for twice.
func TestCheckLoss(t *testing.T) {
	const last = math.MaxInt64 - 1
	for _, c := range []struct{ at, limit, to, newLimit, lost int64 }{ // a zero: none
		{at: 5001, to: 5001 + allocator.MostJump},
		{at: 5001, to: 5002 + allocator.MostJump, lost: allocator.MostJump + 1},
		{at: 5001, to: 9e18, lost: 9e18 - 5001},
		{at: 101, limit: 200, to: 151},
		{at: 101, limit: 200, to: 152, lost: 51},
		{at: 101, limit: 200, to: 1000, lost: 100},
		{at: 101, limit: 200, to: 152, newLimit: 1000},
		{at: 101, limit: 200, newLimit: 101},
		{at: 101, limit: 200, newLimit: 100, lost: 100},
		{at: 201, limit: 200, newLimit: 300},
		{at: 5001, newLimit: 214, lost: last - 5000},
		{at: last, to: last},
		{at: last - 9, to: last, lost: 9},
		{at: 5001, to: 4000}, // it only moves forward: the store says so
	} {
		var change allocator.Change
		if c.to > 0 {
			change.MaxID = &c.to
		}
		if c.newLimit > 0 {
			change.Limit = (*idspace.Limit)(&c.newLimit)
		}
		err := allocator.Tag{MaxID: c.at, Rules: allocator.Rules{Limit: c.limit}}.CheckLoss(change)
		if named := fmt.Sprint(c.lost, " "); (err != nil) != (c.lost > 0) || err != nil &&
			(!errors.Is(err, allocator.ErrConflict) || !strings.Contains(err.Error(), named)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	opaque := allocator.Tag{MaxID: 1, Order: "opaque-d9", Rules: allocator.Rules{Limit: 999_999_999}}
	to := int64(600_000_000)
	if err := opaque.CheckLoss(allocator.Change{MaxID: &to}); !errors.Is(err, allocator.ErrConflict) {
		t.Errorf("beyond half of a domain: %v", err)
	}
	limit := idspace.Limit(-1)
	if err := opaque.CheckLoss(allocator.Change{RulesChange: idspace.RulesChange{Limit: &limit}}); !errors.Is(err, idspace.ErrBadValue) {
		t.Errorf("a limit that nothing can have: %v", err)
	}
}

func TestWith(t *testing.T) {
	p := func(n int64) *int64 { return &n }
	text := "new"
	old := allocator.Tag{Name: "order", MaxID: 100, Step: 10, Description: "old", Floor: 7}
	for name, c := range map[string]struct {
		change allocator.Change
		want   allocator.Tag
		err    error
	}{
		"nothing":         {allocator.Change{}, old, nil},
		"step":            {allocator.Change{Step: p(20)}, allocator.Tag{Name: "order", MaxID: 100, Step: 20, Description: "old", Floor: 7}, nil},
		"description":     {allocator.Change{Description: &text}, allocator.Tag{Name: "order", MaxID: 100, Step: 10, Description: "new", Floor: 7}, nil},
		"max_id":          {allocator.Change{MaxID: p(200)}, allocator.Tag{Name: "order", MaxID: 200, Step: 10, Description: "old", Floor: 200}, nil},
		"the same max_id": {allocator.Change{MaxID: p(100)}, allocator.Tag{Name: "order", MaxID: 100, Step: 10, Description: "old", Floor: 100}, nil},
		"max_id back":     {allocator.Change{MaxID: p(99), Step: p(20)}, old, allocator.ErrConflict},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := old.With(c.change)
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if (err == nil) == got.Updated.IsZero() {
				t.Errorf("updated is %v", got.Updated)
			}
			got.Updated = old.Updated
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
	restored := allocator.Tag{Name: "order", MaxID: 50, Step: 10, Floor: 100}
	if _, err := restored.With(allocator.Change{MaxID: p(99)}); !errors.Is(err, allocator.ErrConflict) {
		t.Errorf("max_id moved below the floor: %v", err)
	}
}
