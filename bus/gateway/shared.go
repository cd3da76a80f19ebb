package gateway

import "time"

const (
	// fresh is for how long an answer is shown to others too: however many look,
	// it is asked for once a second.
	fresh = time.Second
	// costly makes that longer for an answer that took long: so many times as long. The
	// work of which it came is not to take what IDs need.
	costly = 20
)

// shared is an answer that all share while it is fresh. Its methods are safe for
// concurrent use.
type shared[T any] struct {
	ask  func() T
	turn chan struct{} // taken by who asks, and looks: the others wait for the same

	// Guarded by turn.
	value T
	until time.Time
}

func newShared[T any](ask func() T) *shared[T] {
	return &shared[T]{ask: ask, turn: make(chan struct{}, 1)}
}

func (s *shared[T]) get() T {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if begun := time.Now(); !begun.Before(s.until) {
		s.value = s.ask()
		now := time.Now()
		s.until = now.Add(max(fresh, costly*now.Sub(begun)))
	}
	return s.value
}
