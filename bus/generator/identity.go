package generator

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

// Identity says which installation a generator belongs to. The zero value is
// that of a generator that has not joined one yet.
type Identity struct {
	Installation string    `json:"installation,omitempty"` // its random ID
	Created      time.Time `json:"created,omitzero"`
}

// membership is the installation that a generator is part of.
type membership struct {
	identity atomic.Pointer[Identity] // nil: not joined yet
	joined   chan struct{}            // closed when identity is known
}

// yieldsTo reports whether generators of i must not serve beside generators of the other
// installation, because the other is older.
func (i Identity) yieldsTo(other Identity) bool {
	switch {
	case i.Installation == "" || other.Installation == "" || i.Installation == other.Installation:
		return false
	case i.Created.Equal(other.Created):
		return i.Installation > other.Installation
	}
	return i.Created.After(other.Created)
}

// mayCreate returns an error if another generator runs as part of an installation. Then the record
// of that installation is lost, for example because the disks of a cluster's servers were replaced
// before the new disks had a copy of it. A new record would begin a second installation at 1.
func (g *Generator) mayCreate(ctx context.Context) error {
	if err := g.hearPeers(ctx); err != nil {
		return err
	}
	if g.cfg.Conn.ConnectedClusterName() != "" {
		// The server may have joined its cluster only just now. Each generator
		// there sends a heartbeat before this wait is over.
		select {
		case <-time.After(heartbeatExpires):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, b := range g.group.present(time.Now()) {
		if b.Installation != "" {
			return fmt.Errorf("%w: JetStream lost the record of installation %s: %s runs as part of it, "+
				"but bucket %s has no record. See docs/cluster.md for what to do; for a new installation, first stop all generators of %s",
				allocator.ErrUnavailable, b.Installation, b.Node, bus.BucketInstallation, b.Installation)
		}
	}
	return nil
}

// checkRival ends the generator if the sender of the heartbeat is of an older installation.
//
// Callers of one subject space must get IDs of one installation. There are two if servers with a
// JetStream each are linked, for example by leaf nodes.
func (g *Generator) checkRival(b heartbeat) {
	own := g.membership.identity.Load()
	if own == nil || !own.yieldsTo(b.Identity) {
		return
	}
	g.fail(fmt.Errorf("%w: this generator is of installation %s, but %s, which answers on the same subjects, is of the older %s, "+
		"so callers would get the same IDs from both: give all generators the same JetStream (--server, --js-domain), "+
		"or accounts of their own",
		allocator.ErrRefused, own.Installation, b.Node, b.Installation))
}
