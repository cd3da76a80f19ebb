package allocatortest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// Loss says how calls of a [LossyRecords] and a [LossyNumbers] fail: the share of each failure, from 0 to 1, together
// at most 1.
type Loss struct {
	Refused  float64 // the call fails at once, and it is certain that nothing was done
	Dropped  float64 // nothing was done, and the caller cannot know
	Answer   float64 // it was done, and the caller cannot know
	Late     float64 // the caller cannot know, and it is done within Lateness after the call has failed
	Lateness time.Duration
	Delay    time.Duration // calls take up to this long, one half before they are done and one half after
}

// fate is what happens to one call.
type fate int

const (
	done fate = iota
	refused
	dropped
	answer
	late
)

// faults draws the fate of each call.
type faults struct {
	Loss
	mu     sync.Mutex
	random *rand.Rand
}

// draw returns the fate of a call, after the first half of its delay.
func (f *faults) draw(ctx context.Context) (fate, error) {
	f.mu.Lock()
	x := f.random.Float64()
	f.mu.Unlock()
	f.pause(ctx)
	for i, share := range []float64{f.Refused, f.Dropped, f.Answer, f.Late} {
		if x -= share; x < 0 {
			return fate(i + 1), nil
		}
	}
	return done, ctx.Err()
}

// pause waits for up to half of the delay.
func (f *faults) pause(ctx context.Context) {
	if f.Delay > 0 {
		sleep(ctx, f.up(f.Delay/2))
	}
}

func (f *faults) up(most time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Duration(f.random.Int64N(int64(max(most, 1))))
}

// call makes a call, or not. A call that lands late has no caller and no deadline any more. uncertain is the error of
// a call whose outcome nobody knows.
func call[T any](
	ctx context.Context, f *faults, uncertain error, do func(context.Context) (T, error),
) (none T, _ error) {
	what, err := f.draw(ctx)
	switch {
	case err != nil:
		return none, err
	case what == refused:
		return none, errRefused
	case what == late:
		time.AfterFunc(f.up(f.Lateness), func() { do(context.WithoutCancel(ctx)) })
		return none, uncertain
	case what == dropped:
		return none, uncertain
	}
	result, err := do(ctx)
	f.pause(ctx)
	if err == nil && what == answer {
		return none, uncertain
	}
	return result, err
}

// change is call for a call without a result.
func (f *faults) change(ctx context.Context, do func(context.Context) error) error {
	_, err := call(ctx, f, ErrFault, func(ctx context.Context) (struct{}, error) { return struct{}{}, do(ctx) })
	return err
}

// ErrFault is the error of a call that failed at random.
var ErrFault = errors.New("injected fault")

var (
	errRefused   = fmt.Errorf("%w: nothing was done", ErrFault)
	errUncertain = fmt.Errorf("%w: %w", allocator.ErrUncertain, ErrFault)
)

// LossyRecords is records whose Load and Swap fail at random.
type LossyRecords struct {
	allocator.Records
	faults
}

// NewLossyRecords wraps r. random belongs to the result.
func NewLossyRecords(r allocator.Records, l Loss, random *rand.Rand) *LossyRecords {
	return &LossyRecords{Records: r, faults: faults{Loss: l, random: random}}
}

// Load implements [allocator.Records].
func (l *LossyRecords) Load(ctx context.Context, tag string) (allocator.Stored, error) {
	return call(ctx, &l.faults, errRefused, func(ctx context.Context) (allocator.Stored, error) {
		return l.Records.Load(ctx, tag)
	})
}

// Swap implements [allocator.Records].
func (l *LossyRecords) Swap(ctx context.Context, t allocator.Tag, revision uint64) (uint64, error) {
	return call(ctx, &l.faults, errUncertain, func(ctx context.Context) (uint64, error) {
		return l.Records.Swap(ctx, t, revision)
	})
}

// LossyNumbers is numbers whose calls fail at random.
type LossyNumbers struct {
	allocator.Numbers
	faults
}

// NewLossyNumbers wraps n. random belongs to the result.
func NewLossyNumbers(n allocator.Numbers, l Loss, random *rand.Rand) *LossyNumbers {
	return &LossyNumbers{Numbers: n, faults: faults{Loss: l, random: random}}
}

// Advance implements [allocator.Numbers].
func (l *LossyNumbers) Advance(ctx context.Context, tag string, n, step, from int64) (allocator.Range, int64, error) {
	type advanced struct {
		r    allocator.Range
		step int64
	}
	a, err := call(ctx, &l.faults, ErrFault, func(ctx context.Context) (advanced, error) {
		r, step, err := l.Numbers.Advance(ctx, tag, n, step, from)
		return advanced{r, step}, err
	})
	return a.r, a.step, err
}

// Peek implements [allocator.Numbers].
func (l *LossyNumbers) Peek(ctx context.Context, tag string) (allocator.Row, error) {
	return call(ctx, &l.faults, ErrFault, func(ctx context.Context) (allocator.Row, error) {
		return l.Numbers.Peek(ctx, tag)
	})
}

// Add implements [allocator.Numbers].
func (l *LossyNumbers) Add(ctx context.Context, r allocator.Row) error {
	return l.change(ctx, func(ctx context.Context) error { return l.Numbers.Add(ctx, r) })
}

// Raise implements [allocator.Numbers].
func (l *LossyNumbers) Raise(ctx context.Context, tag string, end int64, step *int64, description *string) error {
	return l.change(ctx, func(ctx context.Context) error { return l.Numbers.Raise(ctx, tag, end, step, description) })
}

// Mark implements [allocator.Numbers].
func (l *LossyNumbers) Mark(ctx context.Context, tag string, mark int64, kind string) error {
	return l.change(ctx, func(ctx context.Context) error { return l.Numbers.Mark(ctx, tag, mark, kind) })
}

// Remove implements [allocator.Numbers].
func (l *LossyNumbers) Remove(ctx context.Context, tag string, mark int64, kind string) error {
	return l.change(ctx, func(ctx context.Context) error { return l.Numbers.Remove(ctx, tag, mark, kind) })
}
