package events

import (
	"time"

	"github.com/leafbus/leafbus/bus/admin"
)

// The bodies of events. Node is the generator that published the event, except in [Lost] and its
// end. Fields that end in MS are milliseconds: durations, or Unix times by the generator's clock. A
// newer generator may publish more fields than these types have: [Event.Data] has all of them.
type (
	// Refill is the body of leaf.segment.refill: a range was reserved.
	Refill struct {
		Node  string `json:"node"`
		Tag   string `json:"tag"`
		First int64  `json:"first,string"` // of the range's IDs
		Last  int64  `json:"last,string"`
		Step  int64  `json:"step"` // as it is adapted to the demand
		// demand (requests waited), prefetch or batch (a large request)
		Cause     string  `json:"cause"`
		ElapsedMS float64 `json:"elapsed_ms"` // of the store's write
	}
	// RefillFailed is the body of the alert leaf.segment.refill_failed: the store refused a
	// range, or did not answer. The generator retries.
	RefillFailed struct {
		Node  string `json:"node"`
		Tag   string `json:"tag"`
		Error string `json:"error"`
		Left  int64  `json:"left"` // IDs still in memory
	}
	// Starved is the body of the alert leaf.segment.starved: requests are refused because
	// memory is empty, and no other generator has the IDs.
	Starved struct {
		Node    string `json:"node"`
		Tag     string `json:"tag"`
		Waiting int    `json:"waiting"` // requests, the first refused one included
	}
	// TagProblem is the body of the alerts leaf.tag.shadowed (the database has a row with the name
	// of a strict or opaque tag, which is not served) and leaf.tag.damaged (the tag's record cannot
	// be read, or is of a newer version).
	TagProblem struct {
		Node  string `json:"node"`
		Tag   string `json:"tag"`
		Error string `json:"error"`
	}
	// Ending is the body of the alert leaf.segment.ending: 80 % of the tag's IDs are reserved.
	Ending struct {
		Node  string `json:"node"`
		Tag   string `json:"tag"`
		Left  int64  `json:"left"`         // IDs that are not reserved
		Limit int64  `json:"limit,string"` // the largest ID of the tag
	}
	// Regressed is the body of the alert leaf.segment.regressed: the store went backwards.
	Regressed struct {
		Node  string `json:"node"`
		Tag   string `json:"tag"`
		Store string `json:"store"`       // kv or mysql
		Got   int64  `json:"got,string"`  // where the store's max_id was, or another generator's range began
		Seen  int64  `json:"seen,string"` // all IDs below are in use
		// Action is advanced if the store was raised above Seen, and service goes on. It is dropped
		// if two generators held one range: then an operator must look, because the IDs from First
		// to Last may come twice.
		Action string `json:"action"`
		First  int64  `json:"first,string,omitempty"`
		Last   int64  `json:"last,string,omitempty"`
	}
	// Unavailable is the body of the alerts leaf.records.unavailable (JetStream lost the
	// installation's record or the records of all tags, somebody changed their bucket, or it cannot
	// be written; Error says which) and leaf.registry.unavailable (the registry of workers does not
	// confirm the generator's worker: snowflakes go on until its reservation ends).
	Unavailable struct {
		Node    string `json:"node"`
		Error   string `json:"error"`
		SinceMS int64  `json:"since_ms"` // Unix time
	}
	// NATSDegraded is the body of the alert leaf.nats.degraded: the NATS server in the generator's
	// process does not keep its part of the installation's state, or all generators use one server
	// of a cluster.
	NATSDegraded struct {
		Node  string `json:"node"`
		Cause string `json:"cause"`
	}
	// Recovered is the body of leaf.segment.recovered, and so of tag, records, registry, nats,
	// clock, worker and node: an alert is over. If leaf.node.recovered has [EpisodeLost], Node is
	// the generator that was lost.
	Recovered struct {
		Node   string `json:"node"`
		Tag    string `json:"tag,omitempty"`    // only in leaf.segment.recovered
		Worker *int64 `json:"worker,omitempty"` // only in leaf.clock.recovered and leaf.worker.recovered; 0 is a worker
		// Episode is the last word of the alert's type: starved for leaf.segment.starved.
		Episode string `json:"episode"`
	}
	// ClockBackwards is the body of the alert leaf.clock.backwards: the clock is behind the
	// last snowflake.
	ClockBackwards struct {
		Node     string `json:"node"`
		Worker   int64  `json:"worker"`
		OffsetMS int64  `json:"offset_ms"` // how far it is behind
		LastMS   int64  `json:"last_ms"`   // time of the last snowflake
		NowMS    int64  `json:"now_ms"`
		Action   string `json:"action"`
	}
	// ClockSkewed is the body of the alert leaf.clock.skewed: the clock stepped forward, and
	// other generators disagree or there are none; or it is wrong at a start. One of RecordedMS and
	// PeersMS is 0.
	ClockSkewed struct {
		Node        string `json:"node"`
		NowMS       int64  `json:"now_ms"`
		RecordedMS  int64  `json:"recorded_ms,omitempty"` // by this generator's last run, or the monotonic clock
		PeersMS     int64  `json:"peers_ms,omitempty"`    // the median of the other generators' clocks
		ThresholdMS int64  `json:"threshold_ms"`          // a duration
	}
	// Worker is the body of leaf.worker.acquired and leaf.worker.released, and of the alerts
	// leaf.worker.lost and leaf.worker.expiring. [Event.Type] says which.
	Worker struct {
		Node     string `json:"node"`
		Worker   int64  `json:"worker"`
		Registry string `json:"registry"` // kv or zookeeper
		// FromMS and AfterMS are only in leaf.worker.acquired. The holder issues no ID with a time
		// before FromMS; 0: nobody held the worker before. AfterMS is the last report in the record
		// that the holder replaced, of itself or of an earlier holder; 0: there was none.
		FromMS  int64 `json:"from_ms,omitempty"`
		AfterMS int64 `json:"after_ms,omitempty"`
		// UntilMS is only in leaf.worker.lost: all IDs that Node issued have earlier times.
		UntilMS         int64 `json:"until_ms,omitempty"`
		ReservedUntilMS int64 `json:"reserved_until_ms"`
		// Holder is only in leaf.worker.released, and only if Node released the worker of another
		// generator for an operator: that generator.
		Holder string `json:"holder,omitempty"`
	}
	// WorkerEnding is the body of the alert leaf.worker.ending: the layout has less than a
	// year left.
	WorkerEnding struct {
		Node   string `json:"node"`
		Worker int64  `json:"worker"`
		EndMS  int64  `json:"end_ms"` // from then on there are no snowflakes
	}
	// Stale is the body of the alert leaf.node.stale: the generator was cut off, and the store
	// does not say which max_id operators have set since. The generator serves again.
	Stale struct {
		Node  string `json:"node"`
		Error string `json:"error"`
	}
	// Lost is the body of the alert leaf.node.lost: the other generators do not hear Node, and it
	// did not report that it ends. They publish one alert together, and one end of it: when one
	// hears Node again, or at UntilMS.
	Lost struct {
		Node        string `json:"node"`          // the lost one; [Event.Source] has the publisher
		Run         string `json:"run"`           // of Node: each start has another
		LastHeardMS int64  `json:"last_heard_ms"` // when its last heartbeat came
		Worker      *int64 `json:"worker,omitempty"`
		// when the reservation of its worker ends; without a worker an hour after LastHeardMS
		UntilMS int64 `json:"until_ms"`
	}
	// Tag is the body of leaf.tag.created, leaf.tag.updated and leaf.tag.deleted: the tag's
	// new record, or its last one.
	Tag struct {
		Node string `json:"node"`
		admin.TagRecord
	}
	// Node is the body of leaf.node.started and leaf.node.stopped.
	Node struct {
		Node    string            `json:"node"`
		Version string            `json:"version"` // of the program
		Address string            `json:"address"` // of the NATS server
		Config  map[string]string `json:"config"`  // flags of the program, without secrets
		// Started is when the process started. It may have published other events before this one.
		Started time.Time `json:"started"`
	}
)

// EpisodeLost is the Episode of the [Recovered] that ends the alert leaf.node.lost.
const EpisodeLost = "lost"
