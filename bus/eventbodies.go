package bus

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
)

// The bodies of events. Node is the generator that tells. Times, and what ends in
// MS, are milliseconds; times are Unix times by the generator's clock. A
// generator that is newer than this package may say more than its types hold:
// [Event.Data] has all.
type (
	// RefillEvent is the body of leaf.segment.refill: a range was reserved.
	RefillEvent struct {
		Node      string          `json:"node"`
		Tag       string          `json:"tag"`
		First     int64           `json:"first,string"` // of the range's IDs
		Last      int64           `json:"last,string"`
		Step      int64           `json:"step"` // as it is adapted to the demand
		Cause     allocator.Cause `json:"cause"`
		ElapsedMS float64         `json:"elapsed_ms"` // of the store's write
	}
	// RefillFailedEvent is the body of the alert leaf.segment.refill_failed: the
	// store refused a range, or did not answer. It is tried again.
	RefillFailedEvent struct {
		Node  string `json:"node"`
		Tag   string `json:"tag"`
		Error string `json:"error"`
		Left  int64  `json:"left"` // IDs still in memory
	}
	// StarvedEvent is the body of the alert leaf.segment.starved: requests are
	// refused because memory is empty.
	StarvedEvent struct {
		Node    string `json:"node"`
		Tag     string `json:"tag"`
		Waiting int    `json:"waiting"` // requests, the first that was refused included
	}
	// RegressedEvent is the body of the alert leaf.segment.regressed: the store went
	// backwards, and the tag is not served until its max_id is moved to Seen at least.
	RegressedEvent struct {
		Node string `json:"node"`
		Tag  string `json:"tag"`
		Got  int64  `json:"got,string"`  // where the range began that the store offered
		Seen int64  `json:"seen,string"` // the end of all ranges that the generator knows of: the ID after their last
	}
	// NATSDegradedEvent is the body of the alert leaf.nats.degraded: the NATS server in the
	// generator's process does not keep its part of the installation's state.
	NATSDegradedEvent struct {
		Node  string `json:"node"`
		Cause string `json:"cause"`
	}
	// RecoveredEvent is the body of leaf.segment.recovered, leaf.nats.recovered,
	// leaf.clock.recovered, leaf.worker.recovered and leaf.node.recovered: an alert is over.
	RecoveredEvent struct {
		Node   string `json:"node"`
		Tag    string `json:"tag,omitempty"`    // of leaf.segment alone
		Worker *int64 `json:"worker,omitempty"` // of leaf.clock and leaf.worker; 0 is a worker
		// Episode is the alert's last word, say starved of leaf.segment.starved.
		Episode string `json:"episode"`
	}
	// ClockBackwardsEvent is the body of the alert leaf.clock.backwards: the clock is
	// behind the last snowflake.
	ClockBackwardsEvent struct {
		Node     string           `json:"node"`
		Worker   int64            `json:"worker"`
		OffsetMS int64            `json:"offset_ms"` // how far it is behind
		LastMS   int64            `json:"last_ms"`   // time of the last snowflake
		NowMS    int64            `json:"now_ms"`
		Action   snowflake.Action `json:"action"`
	}
	// ClockSkewedEvent is the body of the alert leaf.clock.skewed: the clock stepped
	// forward and others do not agree, or there are none; or a start was refused. Either
	// RecordedMS or PeersMS is there, the other is 0.
	ClockSkewedEvent struct {
		Node        string `json:"node"`
		NowMS       int64  `json:"now_ms"`
		RecordedMS  int64  `json:"recorded_ms,omitempty"` // by the own last run, or the monotonic clock
		PeersMS     int64  `json:"peers_ms,omitempty"`    // the median of the other generators' clocks
		ThresholdMS int64  `json:"threshold_ms"`          // a duration
	}
	// WorkerEvent is the body of leaf.worker.acquired and leaf.worker.released, and of
	// the alerts leaf.worker.lost and leaf.worker.expiring: [Event.Type] says which.
	WorkerEvent struct {
		Node            string `json:"node"`
		Worker          int64  `json:"worker"`
		Registry        string `json:"registry"` // kv or zookeeper
		ReservedUntilMS int64  `json:"reserved_until_ms"`
	}
	// WorkerEndingEvent is the body of the alert leaf.worker.ending: the layout has
	// less than a year left.
	WorkerEndingEvent struct {
		Node   string `json:"node"`
		Worker int64  `json:"worker"`
		EndMS  int64  `json:"end_ms"` // from then on there are no snowflakes
	}
	// StaleEvent is the body of the alert leaf.node.stale: the generator was cut off, and the
	// store does not say which max_id operators have set since. The generator serves again.
	StaleEvent struct {
		Node  string `json:"node"`
		Error string `json:"error"`
	}
	// TagEvent is the body of leaf.tag.created, leaf.tag.updated and leaf.tag.deleted:
	// the tag's record as it is since, or was.
	TagEvent struct {
		Node string `json:"node"`
		TagRecord
	}
	// NodeEvent is the body of leaf.node.started and leaf.node.stopped.
	NodeEvent struct {
		Node    string            `json:"node"`
		Version string            `json:"version"` // of the program
		Address string            `json:"address"` // of the NATS server
		Config  map[string]string `json:"config"`  // flags of the program, without secrets
		// Started is when the process started, which may have told other events before this one;
		// from the header Leaf-Started, zero where there is none.
		Started time.Time `json:"-"`
	}
)

// eventTypes are the events that generators publish, by kind and what: their severity,
// and what reads their body.
var eventTypes = map[string]struct {
	severity string
	read     func([]byte) (any, error)
}{
	"segment.refill":        {wire.Info, bodyAs[RefillEvent]},
	"segment.refill_failed": {wire.Alert, bodyAs[RefillFailedEvent]},
	"segment.starved":       {wire.Alert, bodyAs[StarvedEvent]},
	"segment.regressed":     {wire.Alert, bodyAs[RegressedEvent]},
	"segment.recovered":     {wire.Info, bodyAs[RecoveredEvent]},
	"nats.degraded":         {wire.Alert, bodyAs[NATSDegradedEvent]},
	"nats.recovered":        {wire.Info, bodyAs[RecoveredEvent]},
	"clock.backwards":       {wire.Alert, bodyAs[ClockBackwardsEvent]},
	"clock.skewed":          {wire.Alert, bodyAs[ClockSkewedEvent]},
	"clock.recovered":       {wire.Info, bodyAs[RecoveredEvent]},
	"worker.acquired":       {wire.Info, bodyAs[WorkerEvent]},
	"worker.released":       {wire.Info, bodyAs[WorkerEvent]},
	"worker.lost":           {wire.Alert, bodyAs[WorkerEvent]},
	"worker.expiring":       {wire.Alert, bodyAs[WorkerEvent]},
	"worker.ending":         {wire.Alert, bodyAs[WorkerEndingEvent]},
	"worker.recovered":      {wire.Info, bodyAs[RecoveredEvent]},
	"tag.created":           {wire.Info, bodyAs[TagEvent]},
	"tag.updated":           {wire.Info, bodyAs[TagEvent]},
	"tag.deleted":           {wire.Info, bodyAs[TagEvent]},
	"node.started":          {wire.Info, bodyAs[NodeEvent]},
	"node.stopped":          {wire.Info, bodyAs[NodeEvent]},
	"node.stale":            {wire.Alert, bodyAs[StaleEvent]},
	"node.recovered":        {wire.Info, bodyAs[RecoveredEvent]},
}

// EventTypes are the types of the events that generators publish, as leaf.segment.refill,
// with their severity: info or alert.
func EventTypes() iter.Seq2[string, string] {
	return func(yield func(what, severity string) bool) {
		for what, t := range eventTypes {
			if !yield("leaf."+what, t.severity) {
				return
			}
		}
	}
}

// parseBody returns the body of an event, nil if this version does not know
// what it is.
func parseBody(what string, data []byte) (any, error) {
	t, ok := eventTypes[what]
	if !ok {
		return nil, nil
	}
	body, err := t.read(data)
	if err != nil {
		return nil, fmt.Errorf("its body is not that of %s: %w", what, err)
	}
	return body, nil
}

func bodyAs[T any](data []byte) (any, error) {
	var body *T // for null is no body, and no error to encoding/json
	if err := json.Unmarshal(data, &body); err != nil {
		return nil, err
	}
	if body == nil {
		return nil, errors.New("it is null")
	}
	return *body, nil
}
