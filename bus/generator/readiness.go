package generator

import (
	"cmp"
	"errors"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/snowflake"
)

var (
	errCutOff   = errors.New("the connection to NATS is lost")
	errSilent   = errors.New("NATS does not answer")
	errStarting = errors.New("it does not answer requests")
)

// Readiness says whether the generator has all that it is configured with.
func (g *Generator) Readiness() bus.Readiness {
	r := bus.Readiness{
		Segment: g.canServe(g.segments), Snowflake: g.canServe(g.snowflakes),
		Missing: []string{}, Reasons: map[string]string{},
	}
	miss := func(what string, why error) {
		r.Missing = append(r.Missing, what)
		r.Reasons[what] = why.Error()
	}
	switch {
	case g.draining.Load(): // and so it has left the bus
	case !g.cfg.Conn.IsConnected():
		miss("bus", errCutOff)
	case !g.serving.Load():
		miss("bus", errStarting)
	case !g.hears():
		miss("bus", errSilent)
	}
	if why := g.cfg.NATSErr(); why != nil {
		miss("nats", why)
	}
	if why := cmp.Or(g.cfg.StoreErr(), g.segments.healthy(), g.alloc.Failing().Store); why != nil {
		miss("store", why)
	}
	switch why := g.snowflakes.healthy(); {
	case errors.Is(why, snowflake.ErrClockBackwards):
		miss("clock", why)
	case why != nil:
		miss("worker", why)
	}
	if g.draining.Load() {
		miss("draining", allocator.ErrClosed)
	}
	r.Ready = len(r.Missing) == 0
	return r
}
