package allocator

import "time"

// Cause says why a segment was loaded.
type Cause string

// The causes of a refill.
const (
	CauseDemand   Cause = "demand"   // requests were waiting for it
	CausePrefetch Cause = "prefetch" // 10 % of the current segment was used
	CauseBatch    Cause = "batch"    // a request wanted more than a whole step
)

// Event is something that an operator may want to know: one of the types
// below. An episode (failing, starving, regressed) is told once when it begins
// and once, by [Recovered], when it ends.
type Event interface{ event() }

// Refilled says that a range was reserved and is now served.
type Refilled struct {
	Tag string
	Range
	Step    int64 // as adapted
	Cause   Cause
	Elapsed time.Duration // of the store's write
}

// RefillFailed says that the store refused, or did not answer. It is tried again.
type RefillFailed struct {
	Tag  string
	Err  error
	Left int64 // IDs still in memory
}

// Starved says that a request was refused because memory had not enough IDs.
type Starved struct {
	Tag     string
	Waiting int // requests that wait, the refused one included
}

// Regressed says that the store went backwards; see [RegressedError].
type Regressed struct {
	Tag       string
	Got, Seen int64
}

// Recovered says that an episode of the tag is over.
type Recovered struct {
	Tag     string
	Episode string // refill_failed, starved or regressed
}

func (Refilled) event()     {}
func (RefillFailed) event() {}
func (Starved) event()      {}
func (Regressed) event()    {}
func (Recovered) event()    {}
