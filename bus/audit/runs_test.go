package audit

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
)

func TestRuns(t *testing.T) {
	const most = math.MaxInt64
	for _, c := range []struct {
		name     string
		batches  [][]bus.Range
		runs     []bus.Range
		repeated []bus.Range
	}{
		{"nothing", nil, nil, nil},
		{"an empty batch", [][]bus.Range{{}}, nil, nil},
		{"neighbours", [][]bus.Range{{{First: 4, Last: 6}}, {{First: 7, Last: 7}, {First: 1, Last: 3}}}, []bus.Range{{First: 1, Last: 7}}, nil},
		{"apart", [][]bus.Range{{{First: 5, Last: 5}}, {{First: 1, Last: 3}}}, []bus.Range{{First: 1, Last: 3}, {First: 5, Last: 5}}, nil},
		{"the ends", [][]bus.Range{{{First: most, Last: most}}, {{First: 1, Last: 1}, {First: most - 1, Last: most - 1}}},
			[]bus.Range{{First: 1, Last: 1}, {First: most - 1, Last: most}}, nil},
		{"one again", [][]bus.Range{{{First: 1, Last: 9}}, {{First: 4, Last: 4}}}, []bus.Range{{First: 1, Last: 9}}, []bus.Range{{First: 4, Last: 4}}},
		{"one again, in one batch", [][]bus.Range{{{First: 4, Last: 4}, {First: 1, Last: 9}}}, []bus.Range{{First: 1, Last: 9}}, []bus.Range{{First: 4, Last: 4}}},
		{"the same", [][]bus.Range{{{First: most, Last: most}}, {{First: most, Last: most}}}, []bus.Range{{First: most, Last: most}}, []bus.Range{{First: most, Last: most}}},
		{"over several", [][]bus.Range{{{First: 1, Last: 2}, {First: 5, Last: 6}}, {{First: 2, Last: 5}}},
			[]bus.Range{{First: 1, Last: 6}}, []bus.Range{{First: 2, Last: 2}, {First: 5, Last: 5}}},
		{"three times", [][]bus.Range{{{First: 4, Last: 4}}, {{First: 4, Last: 4}}, {{First: 4, Last: 4}}}, []bus.Range{{First: 4, Last: 4}}, []bus.Range{{First: 4, Last: 4}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s Runs
			for _, b := range c.batches {
				s.Add(b...)
			}
			n := len(s.Finish())
			if got := slices.Concat(s.lists...); n != len(c.runs) || !slices.Equal(got, c.runs) {
				t.Errorf("%d runs %v, want %v", n, got, c.runs)
			}
			if !slices.Equal(s.repeats, c.repeated) {
				t.Errorf("repeated %v, want %v", s.repeats, c.repeated)
			}
		})
	}
}

// Random runs, in batches of any size, are what a map makes of them.
func TestRandomRuns(t *testing.T) {
	t.Parallel()
	random := allocatortest.Seed(t)
	for round := range 300 {
		var s Runs
		times := make(map[int64]int64)
		span := 1 + random.Int64N(2000) // small ones repeat much, large ones seldom
		for range random.IntN(40) {
			batch := make([]bus.Range, random.IntN(30))
			for i := range batch {
				first := 1 + random.Int64N(span)
				batch[i] = bus.Range{First: first, Last: first + random.Int64N(1+span/100)}
				for id := range batch[i].All() {
					times[id]++
				}
			}
			s.Add(batch...)
		}
		n := len(s.Finish())
		var repeated, last int64
		for id, n := range times {
			repeated += n - 1
			last = max(last, id)
		}
		var want []bus.Range
		for id := int64(1); id <= last; id++ {
			switch n := len(want); {
			case times[id] == 0:
			case n > 0 && want[n-1].Last == id-1:
				want[n-1].Last = id
			default:
				want = append(want, bus.Range{First: id, Last: id})
			}
		}
		if got := slices.Concat(s.lists...); n != len(want) || !slices.Equal(got, want) {
			t.Fatalf("round %d: %d runs %v, want %v", round, n, got, want)
		}
		if s.repeated != repeated {
			t.Fatalf("round %d: %d repeated, want %d", round, s.repeated, repeated)
		}
		if named := min(repeated, 1); int64(len(s.repeats)) < named || len(s.repeats) > keptRepeats {
			t.Fatalf("round %d: %d of %d repeats are named", round, len(s.repeats), repeated)
		}
		for _, r := range s.repeats {
			for id := range r.All() {
				if times[id] < 2 {
					t.Fatalf("round %d: %d is said to have come again", round, id)
				}
			}
		}
	}
}

// However the IDs come, an ID is moved few times: the lists stay few.
func TestRunsStayInFewLists(t *testing.T) {
	t.Parallel()
	random := allocatortest.Seed(t)
	var s Runs
	for range 2000 {
		batch := make([]bus.Range, 1+random.IntN(50))
		for i := range batch {
			id := 1 + random.Int64N(math.MaxInt64)
			batch[i] = bus.Range{First: id, Last: id}
		}
		s.Add(batch...)
		for i := 1; i < len(s.lists); i++ {
			if len(s.lists[i-1]) < 2*len(s.lists[i]) {
				t.Fatalf("a list of %d before one of %d", len(s.lists[i-1]), len(s.lists[i]))
			}
		}
	}
}

func BenchmarkRuns(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			var s Runs
			held := make([][]bus.Range, callers)
			for i := range int64(b.N) {
				c := i % int64(callers)
				held[c] = append(held[c], bus.Range{First: 1 + i, Last: 1 + i})
				if len(held[c]) == 1<<12 {
					s.Add(held[c]...)
					held[c] = held[c][:0]
				}
			}
		})
	}
}
