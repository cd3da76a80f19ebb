package generator

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/snowflake"
)

// gate is what requests wait at while this generator is away, or learns what happened meanwhile.
type gate int

const (
	gateNATS       gate = iota // IDs of tags, also those that another generator borrows. Strict tags need no gate.
	gateHTTP                   // IDs of tags. HTTP is served also without NATS.
	gateSnowflakes             // over both
)

var errUnchecked = fmt.Errorf("%w: the generator was cut off, and has not checked its worker's record since",
	snowflake.ErrNoWorker)

// gates let requests wait while one of them is shut:
//
//	service.request
//	└── hold      at most MaxWaiting requests
//	    └── wait  in a goroutine of the request; then it takes IDs
//
// The methods are safe for concurrent use.
type gates struct {
	cfg     *Config
	away    *away
	waiting atomic.Int64 // requests
}

// hold lets a request wait until the gate is open, and then calls take: at most MaxWait in all, then its error
// is timedOut. Snowflakes wait at most gateFor. If most requests wait already, it refuses the request.
func (w *gates) hold(
	g gate, timedOut error, take func(context.Context) ([]bus.Range, error),
) (*allocator.Later, error) {
	if w.waiting.Add(1) > w.cfg.MaxWaiting {
		w.waiting.Add(-1)
		return nil, allocator.ErrOverloaded
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), w.cfg.MaxWait, timedOut)
	end := sync.OnceFunc(func() { cancel(); w.waiting.Add(-1) })
	later, now := new(allocator.Later), time.Now()
	later.Begin(new(sync.Mutex), now.Add(borrowSlow), now.Add(w.cfg.MaxWait), func(why error) error {
		if why == allocator.ErrTimedOut {
			why = timedOut
		}
		end()
		return why
	})
	go func() {
		var ranges []bus.Range
		err := w.wait(ctx, g)
		if err == nil {
			ranges, err = take(ctx)
		}
		end()
		later.End(ranges, err)
	}()
	return later, nil
}

func (w *gates) wait(ctx context.Context, g gate) error {
	if g == gateSnowflakes {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, gateFor, errUnchecked)
		defer cancel()
	}
	for {
		changed := w.away.shutUntil(g, at(time.Now()))
		if changed == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
