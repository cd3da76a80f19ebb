package generator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// keysEvery is how often the keys of opaque tags are looked at.
const keysEvery = 5 * time.Second

// peerKeys make no secret for the keys while another generator knows opaque tags.
type peerKeys struct {
	Keys
	g *Generator
}

// Make implements [allocator.Keys].
func (k peerKeys) Make(
	ctx context.Context, t allocator.Tag, before func(context.Context) (string, error),
) (id string, err error) {
	return k.Keys.Make(ctx, t, func(ctx context.Context) (string, error) {
		if sign, err := before(ctx); sign != "" || err != nil {
			return sign, err
		}
		if err := k.g.hearPeers(ctx); err != nil {
			return "", err
		}
		for _, b := range k.g.group.present(time.Now()) {
			if b.Opaque && b.Installation == k.g.installation() {
				return fmt.Sprintf("the generator %s knows opaque tags", b.Node), nil
			}
		}
		return "", nil
	})
}

// keepKeys looks at the keys of opaque tags until the context is done. So they are in memory before JetStream is
// away, and a loss is found, and repaired, while a generator has them.
func (g *Generator) keepKeys(ctx context.Context) {
	ticker := time.NewTicker(keysEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			g.checkKeys(ctx)
		}
	}
}

func (g *Generator) checkKeys(ctx context.Context) {
	tag := g.cfg.Index.Opaque()
	if tag == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	s, err := g.alloc.Load(ctx, tag)
	if err != nil || s.KeyID == "" { // it is lost, or JetStream is away
		return
	}
	err = g.cfg.Keys.Check(ctx, s.Tag)
	switch {
	case err == nil:
		if g.keysErr.Swap(nil) != nil {
			g.log.Info("the keys of opaque tags are there again")
		}
	case !errors.Is(err, allocator.ErrDamaged) && !errors.Is(err, allocator.ErrNewer): // what was known before stays
	case g.keysErr.Swap(&err) == nil:
		g.log.Error("opaque tags cannot be served", "error", err)
	}
}
