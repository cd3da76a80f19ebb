package allocator

import (
	"errors"
	"time"
)

// Cause is why a segment was loaded.
type Cause string

// The causes of a refill.
const (
	CauseDemand   Cause = "demand"   // requests were waiting for it
	CausePrefetch Cause = "prefetch" // 10 % of the current segment was used
	CauseBatch    Cause = "batch"    // a request wanted more than a whole step
)

// Event is one of the types below. An alert (RefillFailed, Starved, Regressed) is sent once when
// its episode begins, and Recovered once when it ends. A Regressed whose Action is Dropped is sent
// for each range in doubt.
type Event interface{ event() }

// Refilled reports a range that was reserved and is now served.
type Refilled struct {
	Tag string
	Range
	Step    int64 // as adapted
	Cause   Cause
	Elapsed time.Duration // of the reservation, its claim included
}

// RefillFailed reports that the store refused, or did not answer. The refill is retried.
type RefillFailed struct {
	Tag  string
	Err  error
	Left int64 // IDs still in memory
}

// Starved reports that a request was refused because memory had not enough IDs. See
// [Allocator.Refused].
type Starved struct {
	Tag     string
	Waiting int // requests that wait, the refused one included
}

// Regressed reports that the store went backwards; see [AdvancedError].
type Regressed struct {
	Tag       string
	Got, Seen int64
	Action    Action
	InDoubt   Range // IDs that may come twice, if an operator must look
}

// Action is what was done about a store that went backwards.
type Action string

const (
	Advanced Action = "advanced" // the store was raised above all that is known: service goes on
	Dropped  Action = "dropped"  // two generators held one range, and what was left of it is dropped
)

// Ending reports the refill by which 80 % of the IDs of a tag are reserved.
type Ending struct {
	Tag   string
	Left  int64 // IDs that are not reserved
	Limit int64 // the largest ID
}

// NewEnding returns the event for a tag.
func (t Tag) NewEnding() Ending { return Ending{t.Name, t.Left(t.MaxID), t.end() - 1} }

// Damaged reports that the record of a tag cannot be used: it is damaged, or of a newer version.
type Damaged struct {
	Tag string
	Err error
}

// Shadowed reports that the database has a row with the name of a strict or opaque tag. The row is
// not served.
type Shadowed struct{ Tag string }

// Claimed reports a claim of a strict tag. It is for metrics: there are too many to publish.
type Claimed struct {
	Tag string
	Range
	Requests  int           // that it served
	Conflicts int           // claims of other generators that came first
	PassedTo  string        // the generator that made the claim; empty: this one
	Elapsed   time.Duration // from the first attempt on
}

// Recovered reports the end of an episode.
type Recovered struct {
	Tag     string
	Episode string // refill_failed, starved, regressed, damaged or shadowed
}

func (Refilled) event()     {}
func (RefillFailed) event() {}
func (Starved) event()      {}
func (Regressed) event()    {}
func (Ending) event()       {}
func (Claimed) event()      {}
func (Damaged) event()      {}
func (Shadowed) event()     {}
func (Recovered) event()    {}

// dryError is the error of a request for which memory has not enough IDs. Another generator may
// have them, so nobody is refused yet.
type dryError struct {
	error
	waiting int // requests that wait, this one included
}

func (e *dryError) Unwrap() error { return e.error }

// dryLocked returns the error of such a request. It is one of waiting.
func (b *buffer) dryLocked(now time.Time, err error, waiting int) error {
	switch {
	case err != ErrTimedOut:
	case b.failure != nil:
		err = &UnavailableError{Err: b.failure.err, RetryAfter: max(b.failure.retryAt.Sub(now), 0)}
	case b.strict != nil:
		err = &UnavailableError{Err: errUnclaimed}
	}
	return &dryError{err, waiting}
}

// Refused notes that a caller gets this error of [Allocator.Request] or [Later.Wait]. The first one
// that is refused because memory has not enough IDs raises the alert [Starved], unless the tag has
// IDs again by now. Take does it itself.
func (a *refills) Refused(tag string, err error) {
	dry, ok := errors.AsType[*dryError](err)
	if !ok {
		return
	}
	b := a.lockedBuffer(tag)
	if b == nil {
		return
	}
	defer b.mu.Unlock()
	now := time.Now()
	served := b.strict == nil && b.failure == nil && (b.leftLocked() > 0 || b.exhausted) // since the request began
	if served || b.alerts[starved] || b.strict != nil && now.Sub(b.strict.starved) < starvedAgain ||
		!a.mayAlertLocked(b) {
		return
	}
	b.alerts[starved] = true
	if b.strict != nil {
		b.strict.starved = now
	}
	a.cfg.Notify(Starved{Tag: b.tag, Waiting: dry.waiting})
	if a.refillLocked(b); b.wake == nil {
		a.recoveredLocked(b) // no refill would end it
	}
}
