package gateway

import (
	"context"
	"sync"
	"time"
)

const (
	// stateKept is how long the states of generators are reused, and listKept a page or a record of tags: however many
	// viewers there are, one question is asked in that time. Of many tags a list takes the time that IDs need.
	stateKept = time.Second
	listKept  = 5 * time.Second
)

// shared is an answer that all callers share for some time. Its methods are safe for concurrent use.
type shared[T any] struct {
	ask  func() T
	keep time.Duration

	// turn holds a value while a caller asks; the others wait for the same answer. (In the
	// tests' virtual time, which stands still while a mutex is waited for, it must be a channel.)
	turn  chan struct{}
	value T
	until time.Time
}

func newShared[T any](keep time.Duration, ask func() T) *shared[T] {
	return &shared[T]{ask: ask, keep: keep, turn: make(chan struct{}, 1)}
}

func (s *shared[T]) get() T {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if !time.Now().Before(s.until) {
		s.value = s.ask()
		s.until = time.Now().Add(s.keep)
	}
	return s.value
}

// answers keeps the answers to questions about tags, and shares each among all callers with
// the same question. It keeps at most a given number. Its methods are safe for concurrent
// use.
type answers[K comparable, T any] struct {
	ask  func(context.Context, K) (T, error) // within viewTimeout
	most int

	mu sync.Mutex
	of map[K]*shared[result[T]]
}

type result[T any] struct {
	value T
	err   error
}

func newAnswers[K comparable, T any](most int, ask func(context.Context, K) (T, error)) *answers[K, T] {
	return &answers[K, T]{ask: ask, most: most, of: make(map[K]*shared[result[T]])}
}

func (a *answers[K, T]) get(key K) result[T] { return a.to(key).get() }

func (a *answers[K, T]) to(key K) *shared[result[T]] {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := a.of[key]
	if answer == nil {
		if len(a.of) >= a.most {
			clear(a.of)
		}
		answer = newShared(listKept, func() (r result[T]) {
			ctx, cancel := context.WithTimeout(context.Background(), viewTimeout)
			defer cancel()
			r.value, r.err = a.ask(ctx, key)
			return r
		})
		a.of[key] = answer
	}
	return answer
}
