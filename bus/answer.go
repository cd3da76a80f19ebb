package bus

import (
	"context"
	"time"

	"github.com/leafbus/leafbus/allocator"
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
	// Told is about an event: its severity, and its type as leaf.segment.refill.
	Told(severity, what string)
}

// Answer is how a request ended.
type Answer struct {
	Kind   Kind
	Face   Face
	Reason Reason        // why it was refused; empty: it was not. Or [Canceled]
	IDs    int64         // that it got
	Waited bool          // memory had too few, or the millisecond
	Took   time.Duration // in the generator

	begun time.Time // zero: nobody wants to know
}

// Canceled is the reason of an [Answer] that nobody waited for any more.
const Canceled Reason = "canceled"

// answer begins the account of a request.
func (g *Generator) answer(kind Kind, face Face) Answer {
	a := Answer{Kind: kind, Face: face}
	if g.cfg.Observer != nil {
		a.begun = time.Now()
	}
	return a
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
func (g *Generator) refused(a Answer, err error) *Error {
	e := toError(err)
	g.counts.refused(e.Reason)
	if g.cfg.Observer != nil {
		a.Reason, a.Took = e.Reason, time.Since(a.begun)
		g.cfg.Observer.Answered(a)
	}
	return e
}

// Initialised reports whether the store has been opened, and the tags of the start
// were made.
func (g *Generator) Initialised() bool { return g.prepared.Load() }

// Wanted reports whether requests of a kind should come to this generator: it can answer them
// with IDs, or hears of no other that can. So it is on the bus, too: see issuer.
func (g *Generator) Wanted(kind Kind) bool {
	s := g.segments
	if kind == SnowflakeKind {
		s = g.snowflakes
	}
	if !g.serving.Load() || g.draining.Load() {
		return false
	}
	if s.healthy() == nil {
		return true
	}
	return g.hears() && !g.presence.elsewhere(time.Now(), time.Time{}, s.offered) // cut off, it hears nobody
}

// Take returns n IDs of tag as leaf.segment.<tag> does, for the HTTP face in
// the generator's process. It waits for them if it must. An error is an *[Error], or the context's.
func (g *Generator) Take(ctx context.Context, tag string, n int64) ([]Range, error) {
	return g.segments.take(ctx, tag, n)
}

// Snowflakes returns n snowflakes as leaf.snowflake does; else it is like Take.
func (g *Generator) Snowflakes(ctx context.Context, n int64) ([]Range, error) {
	return g.snowflakes.take(ctx, "", n)
}
