package generator

import (
	"context"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// Hears reports whether a generator with this name runs, as far as g knows.
func (g *Generator) Hears(node string) bool {
	for _, b := range g.group.present(time.Now()) {
		if b.Node == node {
			return true
		}
	}
	return false
}

// Left is how many IDs of a tag are in memory that no request waits for.
func (g *Generator) Left(tag string) int64 {
	left, _ := g.alloc.Has(tag)
	return left
}

// Run's ID, by which others ask g for IDs.
func (g *Generator) RunID() string { return g.group.self }

// HoldSegments makes requests for segments wait, as after a pause.
func (g *Generator) HoldSegments() {
	a := g.group.away
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lessons[theRecords] = lesson{missing: true, since: at(time.Now().Add(time.Hour)), trying: true}
	a.becomeLocked(stateBack)
}

// HoldConcealing makes the batches of opaque tags wait.
func (g *Generator) HoldConcealing() (release func()) {
	n := cap(g.concealer.slots)
	for range n {
		g.concealer.slots <- struct{}{}
	}
	return func() {
		for range n {
			<-g.concealer.slots
		}
	}
}

// Concealing is how many IDs of batches of opaque tags wait or are concealed.
func (g *Generator) Concealing() int64 { return g.concealer.ids.Load() }

// SpreadAfter makes the generators of a cluster spread after d.
func (c *Config) SpreadAfter(d time.Duration) { c.spreadAfter = d }

// CheckKeys looks at the keys of opaque tags now.
func (g *Generator) CheckKeys(ctx context.Context) { g.checks.look(ctx, keysLost) }

// MakeKey makes the key of an opaque tag as the allocator does.
func (g *Generator) MakeKey(ctx context.Context, t allocator.Tag, before func(context.Context) (string, error)) (string, error) {
	return peerKeys{g.cfg.Keys, g.exchange}.Make(ctx, t, before)
}
