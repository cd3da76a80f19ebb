package gateway

import (
	"context"
	"sync"
)

// answers keeps the answers to questions that take much work, and shares each among all
// that ask the same. It keeps at most a given number. Its methods are safe for concurrent use.
type answers[K comparable, T any] struct {
	ask  func(context.Context, K) T // within viewTimeout
	most int

	mu sync.Mutex
	of map[K]*shared[T]
}

func newAnswers[K comparable, T any](most int, ask func(context.Context, K) T) *answers[K, T] {
	return &answers[K, T]{ask: ask, most: most, of: make(map[K]*shared[T])}
}

func (a *answers[K, T]) get(key K) T { return a.to(key).get() }

func (a *answers[K, T]) to(key K) *shared[T] {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := a.of[key]
	if answer == nil {
		if len(a.of) >= a.most {
			clear(a.of)
		}
		answer = newCostly(func() T {
			ctx, cancel := context.WithTimeout(context.Background(), viewTimeout)
			defer cancel()
			return a.ask(ctx, key)
		})
		a.of[key] = answer
	}
	return answer
}
