package allocatortest

import (
	"context"
	"errors"
	"sync"

	"github.com/leafbus/leafbus/allocator"
)

// Fault is what happens to one write of a [Faulty] store.
type Fault int

// The faults of a write whose answer does not arrive.
const (
	None    Fault = iota
	NotDone       // it failed and was not done
	Done          // it failed, but was done
)

// ErrFault is the error of a write that had a [Fault].
var ErrFault = errors.New("injected fault")

// Faulty is a store whose Reserve fails as the function given to [NewFaulty] says.
type Faulty struct {
	allocator.Store

	mu   sync.Mutex
	next func() Fault
}

// NewFaulty wraps store. Next is called once for each Reserve.
func NewFaulty(store allocator.Store, next func() Fault) *Faulty {
	return &Faulty{Store: store, next: next}
}

// Reserve implements [allocator.Store].
func (f *Faulty) Reserve(ctx context.Context, tag string, n, from int64) (allocator.Grant, error) {
	f.mu.Lock()
	fault := f.next()
	f.mu.Unlock()
	switch fault {
	case NotDone:
		return allocator.Grant{}, ErrFault
	case Done:
		if _, err := f.Store.Reserve(ctx, tag, n, from); err != nil {
			return allocator.Grant{}, err
		}
		return allocator.Grant{}, ErrFault
	default:
		return f.Store.Reserve(ctx, tag, n, from)
	}
}
