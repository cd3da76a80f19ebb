package audit

import (
	"fmt"
	"math"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
)

func TestTagTrail(t *testing.T) {
	t.Parallel()
	const most = math.MaxInt64
	type counts struct{ from, reported, lost, gaps, skipped, unreported int64 }
	claim := func(first, last int64) *allocator.Claim {
		return &allocator.Claim{First: first, Last: last, Node: "n", Time: eventTime(7)}
	}
	for _, c := range []struct {
		name          string
		refills       []bus.Range
		moves         []int64
		end, maxID    int64
		last          *allocator.Claim
		want          counts
		doubts, kinds string
	}{
		{"a new tag", nil, nil, 1, 1, nil, counts{}, "[]", "[]"},
		{"no events any more", nil, nil, 501, 501, claim(401, 500), counts{}, "[]", "[]"},
		{"all is reported", []bus.Range{{First: 1, Last: 10}, {First: 11, Last: 20}}, nil, 21, 21, claim(11, 20), counts{1, 20, 0, 0, 0, 0}, "[]", "[]"},
		{"out of order", []bus.Range{{First: 11, Last: 20}, {First: 1, Last: 10}}, nil, 21, 21, claim(11, 20), counts{1, 20, 0, 0, 0, 0}, "[]", "[]"},
		{"older events are gone", []bus.Range{{First: 101, Last: 110}}, nil, 111, 111, nil, counts{101, 10, 0, 0, 0, 0}, "[]", "[]"},
		{"two gaps", []bus.Range{{First: 1, Last: 1}, {First: 5, Last: 5}, {First: 9, Last: 9}}, nil, 10, 10, nil, counts{1, 3, 6, 2, 0, 0}, "[]", "[]"},
		{"claimed since", []bus.Range{{First: 1, Last: 10}}, nil, 31, 31, claim(21, 30), counts{1, 10, 0, 0, 0, 20}, "[]", "[]"},
		{"moved up", []bus.Range{{First: 1, Last: 10}, {First: 50, Last: 60}}, []int64{50}, 61, 61, nil, counts{1, 21, 0, 0, 39, 0}, "[]", "[]"},
		{"moved up, and a range was lost", []bus.Range{{First: 1, Last: 10}, {First: 60, Last: 60}}, []int64{50}, 61, 61, nil, counts{1, 11, 10, 1, 39, 0}, "[]", "[]"},
		{"moved up after the last event", []bus.Range{{First: 1, Last: 10}}, []int64{100}, 111, 111, nil, counts{1, 10, 0, 0, 89, 11}, "[]", "[]"},
		{"twice", []bus.Range{{First: 1, Last: 10}, {First: 10, Last: 20}}, nil, 21, 21, nil, counts{1, 20, 0, 0, 0, 0}, "[10]", "[]"},
		{"one above the end", []bus.Range{{First: 1, Last: 21}}, nil, 21, 21, nil, counts{1, 21, 0, 0, 0, 0}, "[21]", "[]"},
		{"no record", []bus.Range{{First: 1, Last: 20}}, nil, 0, 0, nil, counts{1, 20, 0, 0, 0, 0}, "[1-20]", "[]"},
		{"the last claim has IDs of an event", []bus.Range{{First: 1, Last: 20}}, nil, 31, 31, claim(20, 30), counts{1, 20, 0, 0, 0, 10}, "[20-30]", "[]"},
		{"behind", nil, nil, 21, 20, nil, counts{}, "[]", "[store_behind]"},
		{"the last claim at the end", nil, nil, 20, 20, claim(11, 20), counts{}, "[]", "[damaged_record]"},
		{"the last claim backwards", nil, nil, 20, 20, claim(6, 5), counts{}, "[]", "[damaged_record]"},
		{"the highest IDs", []bus.Range{{First: 1, Last: most - 10}, {First: most - 5, Last: most - 1}}, nil, most, most, claim(most-5, most-1),
			counts{1, most - 5, 4, 1, 0, 0}, "[]", "[]"},
		{"forged up to the highest", []bus.Range{{First: 1, Last: most}}, nil, 100, 100, nil, counts{1, most, 0, 0, 0, 0}, "[100-9223372036854775807]", "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var trail tagTrail
			for i, r := range c.refills {
				trail.refill(eventTime(i), events.Refill{Node: "n", First: r.First, Last: r.Last})
			}
			for _, m := range c.moves {
				trail.move(m)
			}
			a, doubts := trail.audit("mysql", admin.TagClaims{Tag: "order", End: bus.ID(c.end), MaxID: bus.ID(c.maxID), Last: c.last})
			if got := (counts{int64(a.From), a.Reported, a.Lost, a.Gaps, a.Skipped, a.Unreported}); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			if fmt.Sprint(doubts) != c.doubts || kinds(a.Contradictions, "order") != c.kinds {
				t.Errorf("doubts %v and contradictions %v, want %s and %s", doubts, a.Contradictions, c.doubts, c.kinds)
			}
			if a.Shares == nil || a.Events != int64(len(c.refills)) {
				t.Errorf("shares %v of %d events", a.Shares, a.Events)
			}
		})
	}
}

// A record that cannot be read says nothing of the end, so nothing is compared with that. The largest share comes
// first, then by name.
func TestTagTrailOfADamagedRecord(t *testing.T) {
	t.Parallel()
	var trail tagTrail
	for i, node := range []string{"b", "c", "a", "c"} {
		trail.refill(eventTime(i), events.Refill{Node: node, First: int64(1 + 10*i), Last: int64(10 + 10*i)})
	}
	a, doubts := trail.audit("mysql", admin.TagClaims{Tag: "order", MaxID: 11, Problem: "garbage"})
	if len(doubts) > 0 || kinds(a.Contradictions, "order") != "[damaged_record]" || a.Contradictions[0].Message != "garbage" {
		t.Errorf("%v, %+v", doubts, a.Contradictions)
	}
	if got := fmt.Sprint(a.Shares); got != "[{c 2 20} {a 1 10} {b 1 10}]" || !a.Since.Equal(eventTime(0)) {
		t.Errorf("shares %s since %v", got, a.Since)
	}
}
