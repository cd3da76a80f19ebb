package generator

import (
	"sync"
	"sync/atomic"
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
type Transport int

// The faces of a generator.
const (
	NATS Transport = iota
	HTTP
)

// String returns the face's name.
func (f Transport) String() string { return [...]string{"nats", "http"}[f] }

// Observer hears what a generator does, while it does it: its methods must be
// quick, and safe for concurrent use.
type Observer interface {
	Answered(Answer)
	Refilled(allocator.Refilled)
	// Told is about an event: its type, one of [EventTypes].
	EventPublished(what string)
}

// Answer is how a request ended.
type Answer struct {
	Kind      Kind
	Transport Transport
	Reason    bus.Reason    // why it was refused; empty: it was not. Or [Canceled]
	IDs       int64         // that it got
	Waited    bool          // memory had too few, or the millisecond
	Took      time.Duration // in the generator

	begun time.Time // when it came
}

// Canceled is the reason of an [Answer] that nobody waited for any more.
const Canceled bus.Reason = "canceled"

// answer begins the account of a request.
func (g *Generator) answer(kind Kind, face Transport) Answer {
	return Answer{Kind: kind, Transport: face, begun: time.Now()}
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

// counts is what a generator has answered. Its methods are safe for concurrent
// use; the zero value is ready.
type counts struct {
	requests atomic.Int64 // answered with IDs
	ids      atomic.Int64

	mu     sync.Mutex
	errors map[bus.Reason]int64
}

func (c *counts) served(ids int64) {
	c.requests.Add(1)
	c.ids.Add(ids)
}

func (c *counts) refused(reason bus.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.errors == nil {
		c.errors = make(map[bus.Reason]int64)
	}
	c.errors[reason]++
}

// refusals returns a copy of the number of errors by reason.
func (c *counts) refusals() map[bus.Reason]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := make(map[bus.Reason]int64, len(c.errors))
	for reason, n := range c.errors {
		found[reason] = n
	}
	return found
}

// respond answers a request outside its callback.
func (g *Generator) respond(reply string, body []byte) {
	if err := g.cfg.Conn.Publish(reply, body); err != nil {
		g.log.Debug("a reply cannot be sent", "error", err)
	}
}

// refuse answers a request outside its callback with an error.
func (g *Generator) refuse(reply string, a Answer, err error) {
	e := g.refused(a, err)
	if err := g.cfg.Conn.PublishMsg(errorMessage(e, reply)); err != nil {
		g.log.Debug("a reply cannot be sent", "error", err)
	}
}
