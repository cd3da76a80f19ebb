package gateway

import "time"

const (
	// fresh is for how long an answer is shown to others too: however many look,
	// it is asked for once a second.
	fresh = time.Second
	// costly makes that so many times as long as the answer took, and staleness bounds it: for
	// answers of which each is so much work that it would take what IDs need.
	costly    = 20
	staleness = 10 * time.Second
)

// shared is an answer that all share while it is fresh. Its methods are safe for
// concurrent use.
type shared[T any] struct {
	ask    func() T
	costly bool
	turn   chan struct{} // taken by who asks, and looks: the others wait for the same

	// Guarded by turn.
	value T
	until time.Time
}

func newShared[T any](ask func() T) *shared[T] {
	return &shared[T]{ask: ask, turn: make(chan struct{}, 1)}
}

func newCostly[T any](ask func() T) *shared[T] {
	s := newShared(ask)
	s.costly = true
	return s
}

func (s *shared[T]) get() T {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if begun := time.Now(); !begun.Before(s.until) {
		s.value = s.ask()
		now, keep := time.Now(), fresh
		if s.costly {
			keep = min(max(fresh, costly*now.Sub(begun)), staleness)
		}
		s.until = now.Add(keep)
	}
	return s.value
}
