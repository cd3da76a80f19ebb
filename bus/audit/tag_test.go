package audit

import (
	"math"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

func TestTagTrail(t *testing.T) {
	t.Parallel()
	const most = math.MaxInt64
	type counts struct{ from, reported, unreported int64 }
	last := func(first, last int64) *allocator.Claim {
		return &allocator.Claim{First: first, Last: last, Node: "n", Time: eventTime(7)}
	}
	for _, c := range []struct {
		name    string
		refills []bus.Range
		end     int64
		last    *allocator.Claim
		want    counts
		kinds   string
	}{
		{"a new tag", nil, 1, nil, counts{}, "[]"},
		{"no events any more", nil, 501, last(401, 500), counts{}, "[]"},
		{"all is reported", []bus.Range{{First: 1, Last: 10}, {First: 11, Last: 20}}, 21, last(11, 20), counts{1, 20, 0}, "[]"},
		{"out of order", []bus.Range{{First: 11, Last: 20}, {First: 1, Last: 10}}, 21, last(11, 20), counts{1, 20, 0}, "[]"},
		{"older events are gone", []bus.Range{{First: 101, Last: 110}}, 111, nil, counts{101, 10, 0}, "[]"},
		{"two gaps", []bus.Range{{First: 1, Last: 1}, {First: 5, Last: 5}, {First: 9, Last: 9}}, 10, nil, counts{1, 3, 6}, "[]"},
		{"claimed since", []bus.Range{{First: 1, Last: 10}}, 31, last(21, 30), counts{1, 10, 20}, "[]"},
		{"twice", []bus.Range{{First: 1, Last: 10}, {First: 10, Last: 20}}, 21, nil, counts{1, 20, 0}, "[overlap]"},
		{"one above the end", []bus.Range{{First: 1, Last: 21}}, 21, nil, counts{1, 21, 0}, "[unclaimed]"},
		{"no record", []bus.Range{{First: 1, Last: 20}}, 0, nil, counts{1, 20, 0}, "[unclaimed]"},
		{"the last claim has IDs of an event", []bus.Range{{First: 1, Last: 20}}, 31, last(20, 30), counts{1, 20, 10}, "[overlap]"},
		{"the last claim at the end", nil, 20, last(11, 20), counts{}, "[damaged_record]"},
		{"the last claim backwards", nil, 20, last(6, 5), counts{}, "[damaged_record]"},
		{"the highest IDs", []bus.Range{{First: 1, Last: most - 10}, {First: most - 5, Last: most - 1}}, most, last(most-5, most-1),
			counts{1, most - 5, 4}, "[]"},
		{"forged up to the highest", []bus.Range{{First: 1, Last: most}}, 100, nil, counts{1, most, 0}, "[unclaimed]"},
		{"two up to the highest", []bus.Range{{First: 1, Last: most}, {First: 1, Last: most}}, 100, nil, counts{1, most, 0}, "[overlap unclaimed]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var trail tagTrail
			for i, r := range c.refills {
				trail.claims = append(trail.claims, claim{Range: r, at: int64(i), message: uint64(i + 1), node: "n"})
			}
			trail.record = Record{End: bus.ID(c.end), Last: c.last}
			a := trail.audit("order")
			if got := (counts{int64(a.From), a.Reported, a.Unreported}); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			if kinds(a.Contradictions, "order") != c.kinds {
				t.Errorf("contradictions %v, want %s", a.Contradictions, c.kinds)
			}
			if a.Events != int64(len(c.refills)) {
				t.Errorf("%d events", a.Events)
			}
		})
	}
}

// A record that cannot be read says nothing of the end, so nothing is compared with that.
func TestTagTrailOfADamagedRecord(t *testing.T) {
	t.Parallel()
	trail := tagTrail{record: Record{Problem: "garbage"}}
	for i, node := range []string{"b", "c", "a", "c"} {
		ids := bus.Range{First: int64(1 + 10*i), Last: int64(10 + 10*i)}
		trail.claims = append(trail.claims, claim{Range: ids, message: uint64(i + 1), node: node})
	}
	a := trail.audit("order")
	if kinds(a.Contradictions, "order") != "[damaged_record]" || a.Contradictions[0].Message != "garbage" {
		t.Errorf("%+v", a.Contradictions)
	}
	if a.Events != 4 || a.Reported != 40 {
		t.Errorf("%d events, %d IDs", a.Events, a.Reported)
	}
}
