package generator

import (
	"context"
	"fmt"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/events"
)

// Ledger is what a generator knows of the ledger beside its store, see [allocator.WithLedger].
type Ledger interface {
	// Err says why no range can be claimed; nil: as far as is known, one can. It does not block.
	Err() error
	// Keep makes sure that the ledger can be used, until the context is done. It calls mayBegin before it
	// fills the ledger, and waits while that returns an error. It calls replaced if the ledger was lost.
	Keep(ctx context.Context, mayBegin func(context.Context) error, replaced func(cause string))
	// OnShadow makes the store call f when its database has a row with the name of a strict or opaque tag, and when the
	// row is gone; see [allocator.Ordered.OnShadow]. Call it before the store is used.
	OnShadow(f func(tag string, shadowed bool))
}

// ledgerPatience is how long the ledger may be unavailable before that raises an alert.
const ledgerPatience = time.Second

func (g *Generator) keepLedger(ctx context.Context) {
	if g.cfg.Ledger == nil {
		return
	}
	mayBegin := func(ctx context.Context) error {
		if err := g.hearPeers(ctx); err != nil {
			return err
		}
		return g.olderPeer()
	}
	g.cfg.Ledger.Keep(ctx, mayBegin, func(cause string) {
		g.log.Error("the ledger was lost: it is filled again, and nothing is reserved of tags in MySQL meanwhile", "cause", cause)
		g.reported.ledgerReplaced.Store(true)
		g.publishEvent("ledger.replaced", g.cfg.Node, events.LedgerReplaced{Node: g.cfg.Node, Cause: cause})
	})
}

// olderPeer returns an error while a generator of an older version runs, which claims nothing in
// the ledger: then nobody would notice if the database forgot its ranges.
func (g *Generator) olderPeer() error {
	if g.cfg.Ledger == nil {
		return nil
	}
	node, own := "", g.installation()
	older := func(b heartbeat) bool {
		is := !b.Claims && b.Installation != "" && b.Installation == own
		if is {
			node = b.Node
		}
		return is
	}
	if !g.group.anyPeer(time.Now(), time.Time{}, older) {
		return nil
	}
	return fmt.Errorf("%w: the generator %s is of an older version that does not claim its ranges in the ledger: stop it, "+
		"or replace it by this version", allocator.ErrUnavailable, node)
}

// olderThan returns an error while a generator runs that does not know something. It would take the records of strict and opaque tags for damaged
// ones, and write records without their rules.
func (g *Generator) olderThan(what string, knows func(heartbeat) bool) error {
	for _, b := range g.group.present(time.Now()) {
		if !knows(b) && b.Installation == g.installation() {
			return conflict("the generator %s is of an older version that does not know %s: replace it by this version first", b.Node, what)
		}
	}
	return nil
}

// alertShadow publishes that the database has a row with the name of a strict or opaque tag, or that the row is gone.
func (g *Generator) alertShadow(tag string, shadowed bool) {
	if !shadowed {
		g.publishEvent("segment.recovered", tag, events.Recovered{Node: g.cfg.Node, Tag: tag, Episode: "shadowed"})
		return
	}
	g.log.Error("the table leaf_alloc has a row with the name of a strict or opaque tag: the row is not served; delete it, or choose another name for it", "tag", tag)
	g.publishEvent("segment.shadowed", tag, events.Shadowed{Node: g.cfg.Node, Tag: tag})
}

// alertLedger publishes an alert when the ledger is unavailable for ledgerPatience. It publishes the end of
// this alert, and of the one that the ledger was lost, when the ledger is available again.
func (g *Generator) alertLedger(now time.Time) {
	if g.cfg.Ledger == nil {
		return
	}
	r, err := &g.reported, g.cfg.Ledger.Err()
	if err == nil && r.ledgerReplaced.Swap(false) {
		g.log.Info("the ledger is filled again")
		g.publishEvent("ledger.recovered", g.cfg.Node, events.Recovered{Node: g.cfg.Node, Episode: "replaced"})
	}
	switch {
	case err == nil && r.ledgerAway:
		g.log.Info("the ledger is available again")
		g.publishEvent("ledger.recovered", g.cfg.Node, events.Recovered{Node: g.cfg.Node, Episode: "unavailable"})
		fallthrough
	case err == nil:
		r.ledgerAway, r.ledgerSince = false, time.Time{}
	case r.ledgerSince.IsZero():
		r.ledgerSince = now
	case !r.ledgerAway && now.Sub(r.ledgerSince) >= ledgerPatience:
		r.ledgerAway = true
		g.log.Error("no range can be claimed in the ledger: IDs come from memory alone", "error", err)
		g.publishEvent("ledger.unavailable", g.cfg.Node,
			events.LedgerUnavailable{Node: g.cfg.Node, Error: err.Error(), SinceMS: r.ledgerSince.UnixMilli()})
	}
}
