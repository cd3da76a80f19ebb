package generator

import (
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

// Kind is what a request asked for.
type Kind int

// The kinds of requests.
const (
	SegmentKind Kind = iota
	SnowflakeKind
	AdminKind // administration, and decoding
)

// String returns the kind's name.
func (k Kind) String() string { return [...]string{"segment", "snowflake", "admin"}[k] }

// Face is the way on which a request came.
type Face int

// The faces of a generator.
const (
	NATS Face = iota
	HTTP
)

// String returns the face's name.
func (f Face) String() string { return [...]string{"nats", "http"}[f] }

// Observer hears what a generator does, while it does it: its methods must be
// quick, and safe for concurrent use.
type Observer interface {
	Answered(Answer)
	Refilled(allocator.Refilled)
	// Told is about an event: its type, one of [EventTypes].
	Told(what string)
}

// Answer is how a request ended.
type Answer struct {
	Kind   Kind
	Face   Face
	Reason bus.Reason    // why it was refused; empty: it was not. Or [Canceled]
	IDs    int64         // that it got
	Waited bool          // memory had too few, or the millisecond
	Took   time.Duration // in the generator

	begun time.Time // when it came
}

// Canceled is the reason of an [Answer] that nobody waited for any more.
const Canceled bus.Reason = "canceled"

// answer begins the account of a request.
func (g *Generator) answer(kind Kind, face Face) Answer {
	return Answer{Kind: kind, Face: face, begun: time.Now()}
}

// served ends the account of a request that was answered, with n IDs.
func (g *Generator) served(a Answer, n int64) {
	if a.Kind != AdminKind {
		g.counts.served(n)
	}
	if g.cfg.Observer != nil {
		a.IDs, a.Took = n, time.Since(a.begun)
		g.cfg.Observer.Answered(a)
	}
}

// canceled ends the account of a request whose caller has gone.
func (g *Generator) canceled(a Answer) {
	if g.cfg.Observer != nil {
		a.Reason, a.Took = Canceled, time.Since(a.begun)
		g.cfg.Observer.Answered(a)
	}
}

// refused ends the account of a request that is answered with an error.
func (g *Generator) refused(a Answer, err error) *bus.Error {
	e := toError(err)
	g.counts.refused(e.Reason)
	if g.cfg.Observer != nil {
		a.Reason, a.Took = e.Reason, time.Since(a.begun)
		g.cfg.Observer.Answered(a)
	}
	return e
}
