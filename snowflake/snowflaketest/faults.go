package snowflaketest

import (
	"context"
	"errors"
	"sync"

	"github.com/leafbus/leafbus/snowflake"
)

// Fault is what happens to one call of a [Faulty] registry.
type Fault int

// The faults of a call whose answer does not arrive.
const (
	None    Fault = iota
	NotDone       // it failed and was not done
	Done          // it failed, but was done; of List the same as NotDone
)

// ErrFault is the error of a call that had a [Fault].
var ErrFault = errors.New("injected fault")

// Faulty is a registry whose calls fail as next says. Of one that is done, an
// error of the registry itself arrives.
type Faulty struct {
	registry snowflake.Registry

	mu   sync.Mutex
	next func() Fault
}

var _ snowflake.Registry = (*Faulty)(nil)

// NewFaulty wraps registry. Next is called once for each call, one at a time.
func NewFaulty(registry snowflake.Registry, next func() Fault) *Faulty {
	return &Faulty{registry: registry, next: next}
}

func (f *Faulty) fault() Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.next()
}

// List implements [snowflake.Registry].
func (f *Faulty) List(ctx context.Context) ([]snowflake.Entry, error) {
	if f.fault() != None {
		return nil, ErrFault
	}
	return f.registry.List(ctx)
}

// Add implements [snowflake.Registry].
func (f *Faulty) Add(ctx context.Context, r snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
	return faulty(f.fault(), func() (snowflake.Entry, error) { return f.registry.Add(ctx, r, c) })
}

// Put implements [snowflake.Registry].
func (f *Faulty) Put(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
	return faulty(f.fault(), func() (uint64, error) { return f.registry.Put(ctx, r, version) })
}

func faulty[T any](fault Fault, write func() (T, error)) (T, error) {
	var none T
	if fault == NotDone {
		return none, ErrFault
	}
	answer, err := write()
	if err == nil && fault == Done {
		return none, ErrFault
	}
	return answer, err
}
