package snowflake

// Event is something that an operator may want to know: one of the types below. Times are Unix ms,
// and lengths of time ms. An episode is reported once when it begins and once, by [Recovered], when
// it ends.
type Event interface{ event() }

// Action is what is done about a clock that went backwards.
type Action string

// The actions.
const (
	Waited  Action = "waited"  // requests wait for twice the offset
	Refused Action = "refused" // requests are refused until the clock has caught up
)

// The episodes that [Recovered] ends.
const (
	EpisodeBackwards = "backwards"
	EpisodeSkewed    = "skewed"
	EpisodeExpiring  = "expiring"
	EpisodeLost      = "lost"
)

// ClockBackwards says that the clock is behind the last ID.
type ClockBackwards struct {
	Worker    int64
	Offset    int64
	Last, Now int64
	Action    Action
}

// ClockSkewed says that the wall clock stepped forward. Either the peers' clocks do not agree, or
// there are no peers and the step is trusted from now on. At a start it says why no worker is used:
// the clock is behind the last time on record, or differs from the peers'.
type ClockSkewed struct {
	Now       int64
	Expected  int64 // by the monotonic clock; 0: at a start
	Recorded  int64 // the last time on record; 0: it is not about that
	Peers     int64 // the median of their clocks; 0: there are none, or it is not about them
	Threshold int64
}

// WorkerAcquired says that the generator holds a worker.
type WorkerAcquired struct {
	Held
	From int64 // the earliest time that it may issue; 0: nobody held the worker before
	// After is the last report in the record that was replaced, of this holder or an earlier one;
	// 0: there was no record.
	After int64
}

// WorkerReleased says that the generator has released the worker.
type WorkerReleased struct{ Held }

// WorkerLost says that the registry has no record of the worker any more, or one of another
// generator. The generator takes another worker.
type WorkerLost struct {
	Held
	Until int64 // all that it issued has earlier times
}

// WorkerExpiring says that half of the reservation is over and the registry is
// unavailable. At its end no IDs are issued.
type WorkerExpiring struct{ Held }

// Ending says that the layout has less than a year left.
type Ending struct {
	Worker int64
	End    int64
}

// Recovered says that an episode is over.
type Recovered struct {
	Worker  int64 // of the episode
	Episode string
}

// Held is a worker and the end of its reservation.
type Held struct {
	Worker        int64
	ReservedUntil int64
}

func (ClockBackwards) event() {}
func (ClockSkewed) event()    {}
func (WorkerAcquired) event() {}
func (WorkerReleased) event() {}
func (WorkerLost) event()     {}
func (WorkerExpiring) event() {}
func (Ending) event()         {}
func (Recovered) event()      {}
