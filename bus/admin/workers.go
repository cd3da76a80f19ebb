package admin

import "time"

// The requests and replies of leaf.admin.workers.
type (
	// WorkersRequest asks for a page of the workers: up to Limit entries (default and maximum
	// 1,000) with a number from From on.
	WorkersRequest struct {
		From  int64 `json:"from,omitempty"`
		Limit int   `json:"limit,omitempty"`
	}
	// WorkersPage is the reply to a [WorkersRequest].
	WorkersPage struct {
		Registry string   `json:"registry"` // kv or zookeeper
		Workers  []Worker `json:"workers"`
		Next     int64    `json:"next,omitempty"` // From of the next page; 0: this was the last
		Layout   Layout   `json:"layout"`
	}
	// Layout says what the bits of a snowflake mean. Package snowflake has the same type, with what
	// can be done with it.
	Layout struct {
		Epoch        int64 `json:"epoch"`
		TimeBits     int   `json:"time_bits"`
		WorkerBits   int   `json:"worker_bits"`
		SequenceBits int   `json:"sequence_bits"`
		UnitMS       int64 `json:"unit_ms,omitempty"`
	}
	// Worker is a worker ID and its holder.
	Worker struct {
		Worker        int64     `json:"worker"`
		Node          string    `json:"node"`
		Running       bool      `json:"running"` // a running generator holds it now
		Acquired      time.Time `json:"acquired"`
		Reported      time.Time `json:"reported"`       // the holder's last report
		ReservedUntil time.Time `json:"reserved_until"` // from then on another may take it
	}
	// WorkerRelease asks to release a worker. Node, ReservedUntil and, if it is not zero, Reported
	// must be as listed, so that no changed record is released. The reply is a Worker.
	WorkerRelease struct {
		Worker        int64     `json:"worker"`
		Node          string    `json:"node"`
		ReservedUntil time.Time `json:"reserved_until"`
		Reported      time.Time `json:"reported,omitzero"`
	}
)
