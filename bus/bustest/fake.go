package bustest

import (
	"context"
	"sync"

	"github.com/leafbus/leafbus/bus"
)

var _ bus.Source = (*Fake)(nil)

// Fake is a [bus.Source] without a generator: it gives 1, 2, 3 and so on. Its methods are safe for
// concurrent use. The zero value is ready.
type Fake struct {
	mu   sync.Mutex
	last int64
	err  error
}

// Next returns the next ID, or the error of [Fake.Fail] or of the context.
func (f *Fake) Next(ctx context.Context) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if f.err != nil {
		return 0, f.err
	}
	f.last++
	return f.last, nil
}

// Fail makes Next return err from now on; nil: Next gives IDs again.
func (f *Fake) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}
