package generator

import (
	"context"
	"time"

	"github.com/leafbus/leafbus/bus"
)

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
func (g *Generator) Take(ctx context.Context, tag string, n int64) ([]bus.Range, error) {
	return g.segments.take(ctx, tag, n)
}

// Snowflakes returns n snowflakes as leaf.snowflake does; else it is like Take.
func (g *Generator) Snowflakes(ctx context.Context, n int64) ([]bus.Range, error) {
	return g.snowflakes.take(ctx, "", n)
}
