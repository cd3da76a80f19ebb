package generator

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// startPatience is how long a caller in this process waits while the generator starts: less than
// the 2 s that callers usually wait.
const startPatience = time.Second

var (
	errNotYet  = fmt.Errorf("%w: %w", allocator.ErrUnavailable, errStarting)
	errNotOpen = fmt.Errorf("%w: the store is not open yet, or the tags of the start are not created",
		allocator.ErrUnavailable)
)

// phase is how far the generator is, between its start and its stop:
//
//	preparation   opened, prepared, unready
//	Generator     serving, begun, draining, refusing; Run returns what fail got first
//
// All others only read it. Its methods are safe for concurrent use.
type phase struct {
	life     context.Context       // of work in the background; Run sets it before any begins
	opened   atomic.Bool           // the store is open
	prepared atomic.Bool           // the store is open, and the tags of the start exist
	unready  atomic.Pointer[error] // why the last step of the preparation failed; nil: none did
	serving  atomic.Bool           // NATS has confirmed the subscriptions, and Run has not failed
	begun    chan struct{}         // closed when serving was first true
	draining atomic.Bool
	refusing atomic.Bool // it drains, and hears no other generator
	failed   chan error  // why Run must end; holds one
}

func newPhase() *phase { return &phase{begun: make(chan struct{}), failed: make(chan error, 1)} }

// fail ends the generator. Run returns the first error.
func (p *phase) fail(err error) {
	select {
	case p.failed <- err:
	default:
	}
}

// await waits while the generator starts, and reports whether it serves.
func (p *phase) await(ctx context.Context) bool {
	if p.serving.Load() {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	select {
	case <-p.begun:
	case <-ctx.Done():
	}
	return p.serving.Load() // not if Run has failed
}

// notPrepared is why tags may not be known yet; nil: the records are there, and so are the tags of
// the start.
func (p *phase) notPrepared() error {
	switch why := p.unready.Load(); {
	case p.prepared.Load():
		return nil
	case why != nil:
		return *why
	}
	return errNotOpen
}
