package snowflake

import (
	"container/list"
	"context"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// Range is a run of consecutive IDs.
type Range = allocator.Range

// Waiter is a request that could not be met at once. It waits until it is
// satisfied or refused.
type Waiter struct {
	g        *Generator
	queue    *list.List
	deadline time.Time
	done     chan struct{} // closed when ranges and err are final

	// Guarded by the generator's lock until done is closed.
	place   *list.Element // nil: no longer in the queue
	missing int64
	ranges  []Range
	err     error
}

// Wait returns the IDs, all that were asked for, or an error. It must be called
// once. When the context ends, or the generator's MaxWait is over, what was put
// aside for the request is lost: a gap.
func (w *Waiter) Wait(ctx context.Context) ([]Range, error) {
	timer := time.NewTimer(time.Until(w.deadline))
	defer timer.Stop()
	var err error
	select {
	case <-w.done:
		return w.ranges, w.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = ErrTimedOut
	}
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	if w.place != nil { // else it was settled just now
		w.g.settleLocked(w, err)
	}
	return w.ranges, w.err
}
