package gateway

import (
	"context"
	"time"
)

const (
	// viewTimeout bounds the questions to the bus for one view.
	viewTimeout = 5 * time.Second
	// stateKept is how long answers are reused: however many viewers there are, one question is
	// asked in that time.
	stateKept = time.Second
	// listKept is that time for a page of all tags. Of many tags a list takes the time that IDs
	// need.
	listKept = 2 * time.Second
	// mostKept is how many answers are kept.
	mostKept = 100
)

// answers keeps the answers to questions for some time, and shares each among all callers with the
// same question. It asks one question at a time, so that viewers cannot keep a generator busy. Its
// methods are safe for concurrent use.
type answers[K comparable, T any] struct {
	ask  func(context.Context, K) T // within viewTimeout
	keep time.Duration

	// turn holds a value while a caller asks; the others wait. (In the tests' virtual time, which
	// stands still while a mutex is waited for, it must be a channel.)
	turn chan struct{}
	kept map[K]answer[T]
}

type answer[T any] struct {
	value T
	until time.Time
}

func newAnswers[K comparable, T any](keep time.Duration, ask func(context.Context, K) T) *answers[K, T] {
	return &answers[K, T]{ask: ask, keep: keep, turn: make(chan struct{}, 1), kept: make(map[K]answer[T])}
}

// get returns the answer, or nothing to a caller that goes before it is its turn. A caller that
// goes later leaves the answer to the next one.
func (a *answers[K, T]) get(caller context.Context, key K) (none T) {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-caller.Done():
		return none
	}
	if known, ok := a.kept[key]; ok && time.Now().Before(known.until) {
		return known.value
	}
	ctx, cancel := context.WithTimeout(context.Background(), viewTimeout)
	defer cancel()
	value := a.ask(ctx, key)
	if len(a.kept) >= mostKept {
		clear(a.kept)
	}
	a.kept[key] = answer[T]{value, time.Now().Add(a.keep)}
	return value
}
