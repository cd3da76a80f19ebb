package generator

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/nats-io/nats.go"
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

// Transport is how a request came.
type Transport int

// The transports.
const (
	NATS Transport = iota
	HTTP
)

// String returns the transport's name.
func (t Transport) String() string { return [...]string{"nats", "http"}[t] }

// Observer is called for each thing that a generator does, while it does it. Its methods must be
// quick, and safe for concurrent use.
type Observer interface {
	Answered(Answer)
	Allocated(allocator.Event)
}

// Answer is how a request ended.
type Answer struct {
	Kind      Kind
	Transport Transport
	Tag       string        // of a request for IDs of a tag
	Reason    bus.Reason    // why it was refused; empty: it was not. Or [Canceled]
	IDs       int64         // that it got
	Waited    bool          // for a refill, a worker or the next millisecond
	Took      time.Duration // in the generator

	begun time.Time // when it came
}

// Canceled is the reason of an [Answer] to a caller that has gone.
const Canceled bus.Reason = "canceled"

// newAnswer begins the account of a request.
func newAnswer(kind Kind, transport Transport, tag string) Answer {
	return Answer{Kind: kind, Transport: transport, Tag: tag, begun: time.Now()}
}

// counts counts the answers, and reports them to the observer. Its methods are safe for concurrent
// use.
//
//	service, administration ── served, refused, observe   the end of the account of a request
//	queue, concealer ── overloaded
//	state                                                 reads
type counts struct {
	*base
	requests, ids atomic.Int64 // that were answered with IDs
	borrowed      atomic.Int64 // requests that were answered with IDs of another generator
	overloads     atomic.Int64 // see overloaded
	overloadedAt  atomic.Int64 // when one was counted last, Unix ns

	mu     sync.Mutex
	errors map[bus.Reason]int64
}

// countEvery is the least time between two counts of an overload.
const countEvery = 100 * time.Millisecond

// overloaded counts that more comes than the generator can answer: a valve was shut, requests were
// dropped, or a batch was refused.
func (c *counts) overloaded() {
	now, last := time.Now().UnixNano(), c.overloadedAt.Load()
	if now-last >= int64(countEvery) && c.overloadedAt.CompareAndSwap(last, now) {
		c.overloads.Add(1)
	}
}

// refusals returns the number of errors by reason.
func (c *counts) refusals() map[bus.Reason]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := make(map[bus.Reason]int64, len(c.errors)) // not nil: its JSON is an object
	maps.Copy(found, c.errors)
	return found
}

// answerable reports whether a request can be answered there. A sender chooses the subject of the
// answer, which the generator publishes with its own rights. So it publishes no answer where
// JetStream or a generator would take it for a record or a request.
func answerable(reply string) bool {
	return reply != "" && reply[0] != '$' && (!strings.HasPrefix(reply, "leaf.") ||
		strings.HasPrefix(reply, wire.SubjectInbox+"."))
}

// served ends the account of a request that was answered, with n IDs.
func (c *counts) served(a Answer, n int64) {
	c.requests.Add(1)
	c.ids.Add(n)
	a.IDs = n
	c.observe(a)
}

// refused ends the account of a request that is answered with an error.
func (c *counts) refused(a Answer, err error) *bus.Error {
	e := toError(err)
	a.Reason = e.Reason
	defer c.observe(a)
	c.mu.Lock()
	if c.errors == nil {
		c.errors = make(map[bus.Reason]int64)
	}
	c.errors[e.Reason]++
	c.mu.Unlock()
	c.alloc.Refused(a.Tag, err)
	return public(c.cfg.Log, e, err)
}

// observe reports the end of a request to the observer.
func (c *counts) observe(a Answer) {
	if c.cfg.Observer != nil {
		a.Took = time.Since(a.begun)
		c.cfg.Observer.Answered(a)
	}
}

// idsMessage is an answer with IDs of a tag of this order.
func idsMessage(reply string, order allocator.Order, body []byte) *nats.Msg {
	msg := &nats.Msg{Subject: reply, Data: body}
	if order == allocator.Strict {
		msg.Header = nats.Header{wire.HeaderOrder: {idspace.OrderStrict}}
	}
	return msg
}
