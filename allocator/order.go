package allocator

import "fmt"

// Order says in which order the IDs of a tag are handed out. It is chosen when the tag is created, for life: the record
// has it, and a deletion keeps it. Otherwise a generator that is cut off could still hand out IDs from memory.
type Order string

// The orders.
const (
	// Trend is the order of IDs that generators hold in memory: those of one generator increase, and those of
	// several trend upwards.
	Trend Order = ""
	// Strict is the order of claims: if a request is sent after the answer to another one has arrived, all its
	// IDs are above all IDs of that answer, whichever generators answer. See [Allocator.claim].
	Strict Order = "strict"
)

// ParseOrder reads trend, strict, or nothing, which is trend. The error matches [ErrBadValue].
func ParseOrder(text string) (Order, error) {
	switch text {
	case "", "trend":
		return Trend, nil
	case string(Strict):
		return Strict, nil
	}
	return Trend, fmt.Errorf("%w: order %s: want trend or strict", ErrBadValue, quote(text))
}

// String returns trend or strict.
func (o Order) String() string {
	if o == Trend {
		return "trend"
	}
	return string(o)
}

// CheckStepOf is [CheckStep] for a tag of this order. A strict tag has no segments, so its step is 0.
func CheckStepOf(o Order, step, maxStep int64) error {
	switch {
	case o != Strict:
		return CheckStep(step, maxStep)
	case step != 0:
		return fmt.Errorf("%w: a strict tag has no step: each write takes as many IDs as the waiting requests need", ErrBadValue)
	}
	return nil
}
