package bus

import "time"

// BuffersPage is one generator's reply to leaf.admin.buffers.
type BuffersPage struct {
	Node    string   `json:"node"`
	Buffers []Buffer `json:"buffers"`
	Next    string   `json:"next"`
}

// Buffer is what a generator holds of a tag.
type Buffer struct {
	Tag      string    `json:"tag"`
	State    string    `json:"state"` // ok, loading, failing, regressed or exhausted
	Step     int64     `json:"step"`  // of the next refill
	Segments []Segment `json:"segments"`
	Left     int64     `json:"left"`  // IDs in memory
	Taken    int64     `json:"taken"` // IDs handed out since the tag was loaded
	Waiting  int       `json:"waiting"`
	Rate     float64   `json:"rate"` // IDs a second, over the last segments
	Refilled time.Time `json:"refilled,omitzero"`
	Error    string    `json:"error,omitempty"`
}

// Segment is a range in memory and the next ID to be handed out of it.
type Segment struct {
	First ID `json:"first"`
	Last  ID `json:"last"`
	Next  ID `json:"next"`
}

// Readiness says whether a generator has all that it is configured with.
type Readiness struct {
	// Ready is false while something that it needs is away; Missing says what: bus, nats,
	// store, worker, clock, or draining.
	Ready   bool     `json:"ready"`
	Missing []string `json:"missing"`
	// Reasons says why, by what is missing.
	Reasons map[string]string `json:"reasons,omitempty"`
	// Segment and Snowflake say whether it can answer with IDs, be it from memory
	// alone while something is missing.
	Segment   bool `json:"segment"`
	Snowflake bool `json:"snowflake"`
}

// State is a generator's state, the data of its $SRV.STATS.
type State struct {
	Node    string    `json:"node"`
	Version string    `json:"version"` // of the program
	Address string    `json:"address"` // of its NATS server
	Started time.Time `json:"started"`
	// Worker is the one that it holds for snowflakes, until ReservedUntil (Unix
	// ms) unless that is moved on; nil: none.
	Worker        *int64 `json:"worker"`
	ReservedUntil int64  `json:"reserved_until_ms,omitempty"`
	// RegistryAway says that the last report of the worker did not reach the registry.
	RegistryAway bool  `json:"registry_away,omitempty"`
	Clock        Clock `json:"clock"`
	Readiness
	// FailingLasts is how many seconds the IDs of the tags last whose refills fail, at the
	// present rates, the least of them; nil: none fails that is used.
	FailingLasts *float64 `json:"failing_lasts_s,omitempty"`
	Counts       Counts   `json:"counts"`
	Busiest      []Buffer `json:"busiest"` // the tags with most IDs handed out
}

// Clock is a generator's clock.
type Clock struct {
	UnixMS int64 `json:"unix_ms"`
	// OffsetMS is how far it is ahead of the median of the other generators', to
	// within the way of a message; nil: it hears none.
	OffsetMS *int64 `json:"offset_ms,omitempty"`
}

// Counts are since the generator started.
type Counts struct {
	Requests      int64            `json:"requests"` // answered with IDs
	IDs           int64            `json:"ids"`
	Errors        map[Reason]int64 `json:"errors"`
	Waiting       int64            `json:"waiting"`        // requests, now
	Tags          int              `json:"tags"`           // in memory, now
	States        map[string]int   `json:"states"`         // and in which state how many are
	Left          int64            `json:"left"`           // IDs in memory, of all tags, now
	Failing       int              `json:"failing"`        // tags whose refills fail, now
	EventsQueued  int              `json:"events_queued"`  // now
	EventsDropped int64            `json:"events_dropped"` // for want of a stream
	StoreErrors   int64            `json:"store_errors"`   // refills that failed, each attempt
}
