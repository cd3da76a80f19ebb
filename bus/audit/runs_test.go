package audit

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
)

// Ranges of a file may come in any order. Those that come again are known.
func TestReadRuns(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                              "[] 0 []",
		"20\r\n\n 7-9 \n10\n8-8\n8\n20": "[7-10 20] 3 [8 20]",
		"1-2\n5-6\n2-5":                 "[1-6] 2 [2 5]",
		"9223372036854775807\n1-2\n3-9": "[1-9 9223372036854775807] 0 []",
		"9223372036854775800-9223372036854775807\n9223372036854775807": "[9223372036854775800-9223372036854775807] 1 [9223372036854775807]",
	} {
		var s Runs
		if err := s.Read(strings.NewReader(text)); err != nil {
			t.Error(err)
		}
		runs := s.Finish()
		repeated, some := s.Repeated()
		if got := fmt.Sprint(runs, " ", repeated, " ", some); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]string{"1\norder 5": "line 2: ", "5-1": "line 1: ", "1-": "line 1: ", "1\n\n" + strings.Repeat("1", 1<<17): "line 3: "} {
		if err := new(Runs).Read(strings.NewReader(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.20q: %v, want %s", text, err, want)
		}
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
		got := slices.Clone(s.Finish())
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
		if !slices.Equal(got, want) || s.repeated != repeated {
			t.Fatalf("round %d: runs %v, want %v; %d repeated, want %d", round, got, want, s.repeated, repeated)
		}
		if len(s.repeats) == 0 && repeated > 0 || len(s.repeats) > keptRepeats {
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
