package allocatortest

import (
	"context"
	"errors"
	"testing"

	"github.com/leafbus/leafbus/allocator"
)

// NumbersBackend is the [allocator.Numbers] under test. Its functions are called from the test's
// goroutine.
type NumbersBackend struct {
	// Open returns a new handle on the rows of the test tb, as another generator has it. A new test
	// has no rows and no marks.
	Open func(tb testing.TB) allocator.Numbers

	// What SQL by hand can do; nil: it cannot.
	// makes or changes the row of r.Name, with MaxID, Step and Description
	SetRow    func(tb testing.TB, r allocator.Row)
	DeleteRow func(tb testing.TB, tag string)
}

// NumbersCase is one test of the suite for numbers.
type NumbersCase struct {
	Name string
	Run  func(tb testing.TB, b NumbersBackend)
}

// RunNumbers runs the suite for numbers. Each case gets its backend from a call of open.
func RunNumbers(t *testing.T, open func(tb testing.TB) NumbersBackend) {
	for _, c := range NumbersCases() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, open(t)) })
	}
}

// NumbersCases returns the suite for numbers.
func NumbersCases() []NumbersCase {
	return []NumbersCase{
		{"FirstRange", numbersFirstRange},
		{"UnknownTag", numbersUnknownTag},
		{"NamesByCase", numbersNamesByCase},
		{"ManyHandles", numbersManyHandles},
		{"From", numbersFrom},
		{"FromMany", numbersFromMany},
		{"Exhausted", numbersExhausted},
		{"AddTwice", numbersAddTwice},
		{"Raise", numbersRaise},
		{"Mark", numbersMark},
		{"Remove", numbersRemove},
		{"Rows", numbersRows},
		{"ByHand", numbersByHand},
		{"BadRows", numbersBadRows},
		{"ContextDone", numbersContextDone},
	}
}

// add makes the row of a tag.
func add(tb testing.TB, n allocator.Numbers, tag string, maxID, step int64) {
	tb.Helper()
	if err := n.Add(within(tb), allocator.Row{Name: tag, MaxID: maxID, Step: step,
		Description: "of " + tag}); err != nil {
		tb.Fatalf("Add(%s): %v", tag, err)
	}
}

// insisted is Advance, as often as it says that it took nothing because others were there.
func insisted(ctx context.Context, n allocator.Numbers, tag string, size, from int64) (allocator.Range, int64, error) {
	for {
		r, step, err := n.Advance(ctx, tag, size, 10, from) // whatever the row's step is
		_, moved := errors.AsType[*allocator.AdvancedError](err)
		if ctx.Err() != nil || moved || !errors.Is(err, allocator.ErrConflict) && !errors.Is(err, allocator.ErrLocked) {
			return r, step, err
		}
	}
}

// wantAdvance demands a range of a tag.
func wantAdvance(tb testing.TB, n allocator.Numbers, tag string, size, from int64, want allocator.Range,
	wantStep int64) {
	tb.Helper()
	r, step, err := insisted(within(tb), n, tag, size, from)
	if err != nil || r != want || step != wantStep {
		tb.Errorf("Advance(%s, %d, from %d) = %v, step %d, %v; want %v, step %d", tag, size, from, r, step, err, want,
			wantStep)
	}
}

// wantRow demands what Peek returns.
func wantRow(tb testing.TB, n allocator.Numbers, want allocator.Row) {
	tb.Helper()
	r, err := n.Peek(within(tb), want.Name)
	if err != nil || r != want {
		tb.Errorf("Peek(%s) = %+v, %v; want %+v", want.Name, r, err, want)
	}
}
