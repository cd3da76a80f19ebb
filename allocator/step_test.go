package allocator

import (
	"math"
	"testing"
	"time"
)

func TestStepper(t *testing.T) {
	const m = time.Minute
	type load struct {
		after time.Duration // since the load before
		want  int64
	}
	for name, c := range map[string]struct {
		base, most int64
		loads      []load
	}{
		"the first two have the tag's step": {1000, 1 << 40, []load{{0, 1000}, {0, 1000}, {0, 2000}}},
		"the first two, hours apart":        {1000, 1 << 40, []load{{0, 1000}, {9 * 60 * m, 1000}, {0, 2000}}},
		"short: double":                     {1000, 1 << 40, []load{{0, 1000}, {0, 1000}, {15*m - 1, 2000}, {0, 4000}, {m, 8000}}},
		"good: keep":                        {1000, 1 << 40, []load{{0, 1000}, {0, 1000}, {0, 2000}, {15 * m, 2000}, {30*m - 1, 2000}}},
		"long: halve":                       {1000, 1 << 40, []load{{0, 1000}, {0, 1000}, {0, 2000}, {0, 4000}, {30 * m, 2000}, {99 * m, 1000}}},
		"never below the tag's step":        {1000, 1 << 40, []load{{0, 1000}, {0, 1000}, {30 * m, 1000}, {99 * m, 1000}, {0, 2000}}},
		"half of an odd step":               {3, 7, []load{{0, 3}, {0, 3}, {0, 6}, {0, 7}, {30 * m, 3}, {30 * m, 3}}},
		"never above the most":              {1000, 3000, []load{{0, 1000}, {0, 1000}, {0, 2000}, {0, 3000}, {0, 3000}}},
		"the most exactly":                  {1000, 4000, []load{{0, 1000}, {0, 1000}, {0, 2000}, {0, 4000}, {0, 4000}}},
		"the tag's step is the most":        {1000, 1000, []load{{0, 1000}, {0, 1000}, {0, 1000}}},
		"the tag's step is above the most":  {5000, 1000, []load{{0, 5000}, {0, 5000}, {0, 5000}, {20 * m, 5000}, {30 * m, 5000}}},
		"no overflow":                       {math.MaxInt64/2 + 1, math.MaxInt64, []load{{0, math.MaxInt64/2 + 1}, {0, math.MaxInt64/2 + 1}, {0, math.MaxInt64}, {0, math.MaxInt64}}},
		"step 1":                            {1, 5, []load{{0, 1}, {0, 1}, {0, 2}, {0, 4}, {0, 5}, {30 * m, 2}, {30 * m, 1}, {30 * m, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			var s stepper
			now := time.Now()
			for i, l := range c.loads {
				now = now.Add(l.after)
				step := s.next(now, c.most, DefaultOutlast)
				if i > 0 && step < c.base {
					t.Fatalf("load %d asks for %d, less than the tag's step", i+1, step)
				}
				s.rebase(c.base) // as with each grant
				s.loaded(now, step)
				if s.step != l.want {
					t.Fatalf("load %d has step %d, want %d", i+1, s.step, l.want)
				}
			}
		})
	}
}

// TestStepperRebase shows that a changed step starts adaptation anew.
func TestStepperRebase(t *testing.T) {
	for _, base := range []int64{1, 500, 7000, 1 << 30} {
		var s stepper
		now := time.Now()
		s.rebase(1000)
		for range 5 {
			s.loaded(now, s.next(now, 1<<40, DefaultOutlast))
		}
		if s.step != 8000 {
			t.Fatalf("five quick loads made step %d, want 8000", s.step)
		}
		s.rebase(1000)
		if s.step != 8000 {
			t.Errorf("the same step again made step %d, want 8000 as before", s.step)
		}
		s.rebase(base)
		for _, want := range []int64{base, 2 * base, 4 * base} {
			got := s.next(now, 1<<40, DefaultOutlast)
			if got != want {
				t.Errorf("after the step was changed to %d: %d, want %d", base, got, want)
			}
			s.loaded(now, got)
		}
	}
}
