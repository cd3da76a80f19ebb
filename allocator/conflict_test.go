package allocator_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// contended is a store in which others are ahead a number of times.
type contended struct {
	*allocatortest.Memory
	ahead atomic.Int64
}

func (c *contended) Reserve(ctx context.Context, tag string, n, from int64) (allocator.Grant, error) {
	if c.ahead.Add(-1) >= 0 {
		return allocator.Grant{}, allocator.ErrConflict
	}
	return c.Memory.Reserve(ctx, tag, n, from)
}

// That others are ahead is no failure: the store is asked again, each time
// with fresh evidence, and no alert is raised.
func TestOthersAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &contended{Memory: allocatortest.NewMemory()}
		if _, err := s.Create(t.Context(), allocator.Tag{Name: "order", MaxID: 1, Step: 100}); err != nil {
			t.Fatal(err)
		}
		const ahead = 20
		s.ahead.Store(ahead)
		var evidence, failures atomic.Int64
		a := allocator.New(allocator.Config{
			Store: s,
			Evidence: func(context.Context) (func() bool, error) {
				evidence.Add(1)
				return func() bool { return true }, nil
			},
			Notify: func(e allocator.Event) {
				if _, failed := e.(allocator.RefillFailed); failed {
					failures.Add(1)
				}
			},
		})
		if ranges, err := a.Take(t.Context(), "order", 1); err != nil || ranges[0].First != 1 {
			t.Errorf("Take: %v, %v", ranges, err)
		}
		if evidence.Load() != ahead+1 || failures.Load() != 0 {
			t.Errorf("evidence was taken %d times and %d failures told, want %d and 0", evidence.Load(), failures.Load(), ahead+1)
		}
	})
}

// A range that was reserved while others could not be heard is given up, and
// one is not asked for at all while there is no evidence.
func TestEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := allocatortest.NewMemory()
		if _, err := s.Create(t.Context(), allocator.Tag{Name: "order", MaxID: 1, Step: 100}); err != nil {
			t.Fatal(err)
		}
		calls := 0
		a := allocator.New(allocator.Config{
			Store: s,
			Evidence: func(context.Context) (func() bool, error) {
				calls++
				if calls == 1 {
					return nil, errors.New("nobody can be heard")
				}
				heard := calls > 2
				return func() bool { return heard }, nil
			},
		})
		if ranges, err := a.Take(t.Context(), "order", 1); err != nil || ranges[0].First != 101 {
			t.Errorf("Take: %v, %v; want 101, the first range having been given up", ranges, err)
		}
	})
}

// TestSeenBeforeEachRequest: what other generators report until a request to the store counts,
// also if the evidence brings it, and also between two requests of one attempt.
func TestSeenBeforeEachRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, ahead := range map[string]int64{"brought by the evidence": 0, "heard of after a conflict": 1} {
			s := &contended{Memory: allocatortest.NewMemory()}
			if _, err := s.Create(t.Context(), allocator.Tag{Name: "order", MaxID: 1, Step: 100}); err != nil {
				t.Fatal(err)
			}
			s.ahead.Store(ahead)
			marks, calls := allocator.NewMarks(), int64(0)
			a := allocator.New(allocator.Config{
				Store: s,
				Marks: marks,
				Evidence: func(context.Context) (func() bool, error) {
					if calls++; calls > ahead {
						marks.Observe("order", 1000)
					}
					return func() bool { return true }, nil
				},
			})
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if ranges, err := a.Take(t.Context(), "order", 1); !errors.Is(err, allocator.ErrRegressed) {
				t.Errorf("%s: Take returned %v, %v; IDs below 1000 are in use", name, ranges, err)
			}
			a.Run(ctx) // ends the refill
		}
	})
}
