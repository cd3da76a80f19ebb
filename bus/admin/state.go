package admin

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus"
)

// BuffersPage is one generator's reply to leaf.admin.buffers.
type BuffersPage struct {
	Node    string   `json:"node"`
	Buffers []Buffer `json:"buffers"`
	Next    string   `json:"next"`
}

// Buffer is what a generator holds of a tag.
type Buffer struct {
	Tag      string    `json:"tag"`
	State    string    `json:"state"` // ok, paused, loading, failing or exhausted
	Step     int64     `json:"step"`  // of the next refill
	Segments []Segment `json:"segments"`
	Left     int64     `json:"left"`  // IDs in memory
	Taken    int64     `json:"taken"` // IDs handed out since the tag was loaded
	Waiting  int       `json:"waiting"`
	Rate     float64   `json:"rate"` // IDs a second, over the last segments
	// Lasts is after how many seconds memory is empty at that rate if nothing is reserved; nil:
	// nothing is taken, or the tag is strict.
	Lasts    *float64  `json:"lasts_s,omitempty"`
	Refilled time.Time `json:"refilled,omitzero"`
	Error    string    `json:"error,omitempty"`
	// Rules are those of the tag, as the generator knows them. The busiest tags of a [State] are
	// without them.
	Rules TagRules `json:"rules,omitzero"`
	Order string   `json:"order,omitempty"` // strict, or empty
}

// Segment is a range in memory and the next ID to be handed out of it.
type Segment struct {
	First bus.ID `json:"first"`
	Last  bus.ID `json:"last"`
	Next  bus.ID `json:"next"`
}

// Readiness says whether all that a generator needs is available.
type Readiness struct {
	// Ready is false while Missing has something: bus, nats, store, keys, worker, clock, or
	// draining.
	Ready   bool     `json:"ready"`
	Missing []string `json:"missing"`
	// Reasons says why, by the entries of Missing.
	Reasons map[string]string `json:"reasons,omitempty"`
	// Segment and Snowflake say whether it can answer with IDs. While something is missing, it may
	// still have IDs in memory.
	Segment   bool `json:"segment"`
	Snowflake bool `json:"snowflake"`
}

// State is a generator's state, the data of its $SRV.STATS.
type State struct {
	Node    string `json:"node"`
	Version string `json:"version"` // of the program
	Address string `json:"address"` // of its NATS server
	// Server is the name of that NATS server. Each embedded server has its own name, and so has
	// each server of a cluster with JetStream. Host is the name that the generator's machine or
	// container gives itself; two may have the same name. Both are empty if they are unknown.
	// Embedded: that NATS server runs in the generator's process.
	Server   string    `json:"server,omitempty"`
	Host     string    `json:"host,omitempty"`
	Embedded bool      `json:"embedded,omitempty"`
	HTTP     string    `json:"http,omitempty"` // address on which it serves HTTP; empty: it does not
	Started  time.Time `json:"started"`
	// Worker is the worker ID that it holds; nil: none. Its reservation lasts until ReservedUntil
	// (Unix ms), and the generator extends it.
	Worker        *int64 `json:"worker"`
	ReservedUntil int64  `json:"reserved_until_ms,omitempty"`
	// RegistryAway says that the last report to the registry failed.
	RegistryAway bool  `json:"registry_away,omitempty"`
	Clock        Clock `json:"clock"`
	Readiness
	// Findings are what it knows to be wrong, at most 12: the worst first.
	Findings []Finding `json:"findings"`
	// FailingLasts is after how many seconds, at the present rates, the first tag with failing
	// refills has no IDs left; nil: no tag in use has failing refills.
	FailingLasts *float64 `json:"failing_lasts_s,omitempty"`
	Counts       Counts   `json:"counts"`
	// Lost are the peers that it does not hear and that did not report that they end, at most 20:
	// those that it heard last.
	Lost []LostNode `json:"lost,omitempty"`
	// Ending are the tags that get no new IDs, at most 10: those that run out of IDs here first, in
	// this order.
	Ending  []EndingTag `json:"ending,omitempty"`
	Busiest []Buffer    `json:"busiest"` // the tags with the highest rates
}

// EndingTag is a tag whose refills fail, or whose store went backwards, at one generator.
type EndingTag struct {
	Tag  string  `json:"tag"`
	Left int64   `json:"left"` // IDs in memory
	Rate float64 `json:"rate"` // IDs a second, over the last segments
}

// LostNode is a generator that others do not hear, and that did not report that it ends. All its
// Unix times are by the clock of the generator that reports it.
type LostNode struct {
	Node        string `json:"node"`
	LastHeardMS int64  `json:"last_heard_ms"` // Unix time of its last heartbeat
	SilentMS    int64  `json:"silent_ms"`     // how long ago that was
	UntilMS     int64  `json:"until_ms"`      // Unix time when its reservation is over. Then it is no longer lost
}

// LostNodes returns the generators that any of the states reports as lost, in the order of nodes.
// It leaves out those that have a state themselves. Of several reports about one it takes the
// latest heartbeat.
func LostNodes(states []State) []LostNode {
	lost := make(map[string]LostNode)
	for _, s := range states {
		for _, l := range s.Lost {
			if known, ok := lost[l.Node]; !ok || l.SilentMS < known.SilentMS {
				lost[l.Node] = l
			}
		}
	}
	for _, s := range states {
		delete(lost, s.Node)
	}
	return slices.SortedFunc(maps.Values(lost), func(x, y LostNode) int { return strings.Compare(x.Node, y.Node) })
}

// Clock is a generator's clock.
type Clock struct {
	UnixMS int64 `json:"unix_ms"`
	// OffsetMS is how far it is ahead of the median of the other generators' clocks. It may be
	// wrong by the time of a message. nil: it hears no other generator.
	OffsetMS *int64 `json:"offset_ms,omitempty"`
}

// Counts are since the generator started.
type Counts struct {
	Requests int64 `json:"requests"` // answered with IDs
	IDs      int64 `json:"ids"`
	Borrowed int64 `json:"borrowed"` // requests that were answered with IDs of another generator
	// how often it left a queue group for a moment, dropped requests, or refused batches of opaque
	// tags, at most 10 a second
	Overloads     int64                `json:"overloads"`
	Errors        map[bus.Reason]int64 `json:"errors"`         // requests for IDs that were refused
	Waiting       int64                `json:"waiting"`        // requests, now
	Tags          int                  `json:"tags"`           // in memory, now
	States        map[string]int       `json:"states"`         // of these, how many are in which state
	Left          int64                `json:"left"`           // IDs in memory, of all tags, now
	Failing       int                  `json:"failing"`        // tags whose refills fail, now
	Lost          int                  `json:"lost"`           // peers that are lost, now
	EventsQueued  int                  `json:"events_queued"`  // now
	EventsDropped int64                `json:"events_dropped"` // because the stream was unavailable for too long
	StoreErrors   int64                `json:"store_errors"`   // refills that failed, each attempt
}
