package snowflake

import (
	"errors"
	"fmt"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// What can go wrong. Test with [errors.Is]; the messages say more.
var (
	ErrBadCount      = allocator.ErrBadCount
	ErrBatchTooLarge = allocator.ErrBatchTooLarge
	ErrOverloaded    = errors.New("too many IDs are waited for")
	ErrTimedOut      = errors.New("waited too long for a snowflake")
	ErrClosed        = allocator.ErrClosed
	// ErrNotAnID: no generator of this layout can have made the number.
	ErrNotAnID = errors.New("not a snowflake of this installation")

	// ErrClockBackwards: the clock is behind what was issued. It is over when
	// the clock has caught up.
	ErrClockBackwards = errors.New("the clock went backwards")
	// ErrNoWorker: the generator holds no worker ID whose reservation lasts.
	ErrNoWorker = errors.New("no worker ID")
	// ErrExhausted: the layout has no milliseconds left, for good.
	ErrExhausted = errors.New("the layout is exhausted")
	// ErrRefused: this generator must not issue snowflakes until a person has
	// done something, which the message names. It ends [Generator.Run] in the first
	// minute, as long as that has not held a worker.
	ErrRefused = errors.New("this generator must not issue snowflakes")

	// ErrConflict: somebody else changed the record first.
	ErrConflict = errors.New("the worker's record was changed by another")
	// ErrFull: every worker that was allowed has a record.
	ErrFull = errors.New("all workers have a record")
)

// BackwardsError is an [ErrClockBackwards] with how far.
type BackwardsError struct {
	Offset time.Duration // until the clock has caught up
}

func (e *BackwardsError) Error() string {
	return fmt.Sprintf("%v by %v", ErrClockBackwards, e.Offset)
}

// Unwrap makes the error match ErrClockBackwards.
func (e *BackwardsError) Unwrap() error { return ErrClockBackwards }
