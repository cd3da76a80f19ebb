package snowflake_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/snowflake"
)

var errAway = errors.New("the registry is away")

// outcome is what becomes of a call of a registry.
type outcome int

const (
	answered outcome = iota
	notDone          // it failed, and was not done
	wasDone          // it was done, and its answer was lost
)

// registry is one process's handle on a registry, with faults, which keeps
// what it was asked to write.
type registry struct {
	snowflake.Registry

	mu     sync.Mutex
	delay  time.Duration
	fault  func(ctx context.Context, call string) outcome // of "List", "Add", "Put"; nil: none
	writes []snowflake.Record
	old    []snowflake.Entry // what List returns, if it is old
	// refused says which calls are refused; nil: none.
	refused func(call string) bool
}

// age lets List return this from now on; nil: what is there.
func (r *registry) age(list []snowflake.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.old = list
}

func (r *registry) set(fault func(ctx context.Context, call string) outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = fault
}

// slow lets each call take so long.
func (r *registry) slow(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = d
}

func (r *registry) away(is bool) {
	if !is {
		r.set(nil)
		return
	}
	r.set(func(context.Context, string) outcome { return notDone })
}

// hang lets no call return before its context is done.
func (r *registry) hang() {
	r.set(func(ctx context.Context, _ string) outcome {
		<-ctx.Done()
		return notDone
	})
}

// loses makes the next call of this kind lose its answer, whether it is done or not. lost says that it has.
func (r *registry) loses(kind string, fault outcome) (lost func() bool) {
	var once atomic.Bool
	r.set(func(_ context.Context, call string) outcome {
		if call == kind && once.CompareAndSwap(false, true) {
			return fault
		}
		return answered
	})
	return once.Load
}

// written returns what the registry was asked to write so far.
func (r *registry) written() []snowflake.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]snowflake.Record(nil), r.writes...)
}

// refuses makes calls of a kind, or, if that is "", all, be refused while when says so.
func (r *registry) refuses(kind string, when func() bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = func(call string) bool { return (kind == "" || kind == call) && when() }
}

// next returns what happens to a call, and its error if that is a fault.
func (r *registry) next(ctx context.Context, call string, writes ...snowflake.Record) (outcome, error) {
	r.mu.Lock()
	r.writes = append(r.writes, writes...)
	fault, delay, refused := r.fault, r.delay, r.refused
	r.mu.Unlock()
	if delay > 0 { // in a bubble a timer that is due at once may crash the race detector
		select {
		case <-time.After(delay):
		case <-ctx.Done():
		}
	}
	what := answered
	switch {
	case refused != nil && refused(call):
		return notDone, fmt.Errorf("%w: somebody must look", snowflake.ErrRefused)
	case ctx.Err() != nil:
		what = notDone
	case fault != nil:
		what = fault(ctx, call)
	}
	if what == answered {
		return what, nil
	}
	return what, errAway
}

func (r *registry) List(ctx context.Context) ([]snowflake.Entry, error) {
	if _, err := r.next(ctx, "List"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	old := r.old
	r.mu.Unlock()
	if old != nil {
		return old, nil
	}
	return r.Registry.List(ctx)
}

func (r *registry) Add(ctx context.Context, record snowflake.Record, c snowflake.Choice) (e snowflake.Entry, err error) {
	fault, failed := r.next(ctx, "Add", record)
	if fault != notDone {
		e, err = r.Registry.Add(ctx, record, c)
	}
	if failed != nil {
		return snowflake.Entry{}, failed
	}
	return e, err
}

func (r *registry) Put(ctx context.Context, record snowflake.Record, version uint64) (v uint64, err error) {
	fault, failed := r.next(ctx, "Put", record)
	if fault != notDone {
		v, err = r.Registry.Put(ctx, record, version)
	}
	if failed != nil {
		return 0, failed
	}
	return v, err
}
