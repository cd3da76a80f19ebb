package generator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/wire"
)

// Identity says which installation a generator belongs to. The zero value is
// that of a generator that has not joined one yet.
type Identity struct {
	Installation string    `json:"installation,omitempty"` // its random ID
	Created      time.Time `json:"created,omitzero"`
}

// membership is the installation that a generator is part of. Run joins it; all others may read it.
//
//	prepare   join, which may ask mayCreate
//	peers     checkRival: of each heartbeat
//	outbox    openEvents
type membership struct {
	*base
	identity atomic.Pointer[Identity] // nil: not joined yet
	joined   chan struct{}            // closed when identity is known
}

// join enters the installation, and sends its ID to the other generators.
func (m *membership) join(ctx context.Context) error {
	identity, err := m.cfg.Join(ctx, m.mayCreate)
	if err != nil {
		return err
	}
	if m.identity.Swap(&identity) == nil {
		close(m.joined)
	}
	for _, b := range m.group.present(time.Now()) {
		m.checkRival(b)
	}
	m.group.join(identity.Installation)
	m.heartbeats.now()
	return nil
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

// openEvents makes sure that the stream of events exists. Before the installation is joined it
// makes none: an empty one would be in the way of a restore.
func (m *membership) openEvents(ctx context.Context) error {
	if m.identity.Load() == nil {
		return nil
	}
	return m.cfg.OpenEvents(ctx)
}

// mayCreate returns an error if there may be an installation already. Then a new record would begin
// a second one at 1.
//
//   - Another generator runs as part of an installation. Its record is lost, for example because
//     the disks of a cluster's servers were replaced before the new disks had a copy of it.
//   - Another generator is a witness: its data folder names an installation. For example, a single
//     server became a cluster, which begins with an empty JetStream.
//   - No generator is heard from one of the routes: it may be such a witness.
func (m *membership) mayCreate(ctx context.Context) error {
	if err := m.heartbeats.hearPeers(ctx); err != nil {
		return err
	}
	var routes map[string]string
	if m.cfg.Routes != nil && !m.cfg.NewInstallation {
		routes = m.cfg.Routes(ctx)
	}
	if m.cfg.Conn.ConnectedClusterName() != "" {
		// The server may have joined its cluster only just now. Each generator
		// there sends a heartbeat before this wait is over.
		select {
		case <-time.After(heartbeatExpires):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	heard := map[string]bool{m.cfg.Conn.ConnectedServerId(): true} // the NATS servers of generators
	var witness heartbeat
	for _, b := range m.group.present(time.Now()) {
		heard[b.Server] = true
		if b.Witness != "" {
			witness = b
		}
		if b.Installation != "" {
			return fmt.Errorf("%w: JetStream lost the record of installation %s: %s runs as part of it, "+
				"but bucket %s has no record. See docs/operate.md for what to do; for a new installation, first stop all "+
				"generators of %s",
				allocator.ErrUnavailable, b.Installation, b.Node, wire.BucketInstallation, b.Installation)
		}
	}
	if m.cfg.NewInstallation {
		return nil
	}
	if witness.Witness != "" {
		return fmt.Errorf("%w: waiting for the record of installation %s: the data folder of %s names it, "+
			"and this NATS has no installation. Run `leaf restore FILE` (docs/operate.md), or stop %s if it does not belong "+
			"here. "+
			"--new-installation begins a new one at 1",
			allocator.ErrUnavailable, witness.Witness, witness.Node, witness.Node)
	}
	return missingRoutes(routes, heard)
}

// missingRoutes names the routes from which no generator is heard. routes has the ID of the NATS
// server at each.
func missingRoutes(routes map[string]string, heard map[string]bool) error {
	var missing []string
	for _, address := range slices.Sorted(maps.Keys(routes)) {
		if id := routes[address]; id == "" || !heard[id] {
			missing = append(missing, address)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%w: this NATS has no installation, and one is created only when a generator of every route is "+
		"heard, because each may know one. No generator is heard from %s: start it, or remove the route from --nats-config. "+
		"--new-installation does not wait",
		allocator.ErrUnavailable, strings.Join(missing, ", "))
}

// checkRival ends the generator if the sender of the heartbeat is of an older installation.
//
// Callers of one subject space must get IDs of one installation. There are two if servers with a
// JetStream each are linked, for example by leaf nodes.
func (m *membership) checkRival(b heartbeat) {
	own := m.identity.Load()
	if own == nil || !own.yieldsTo(b.Identity) {
		return
	}
	m.phase.fail(fmt.Errorf("%w: this generator is of installation %s, but %s, which answers on the same subjects, "+
		"is of the older %s, so callers would get the same IDs from both: give all generators the same JetStream (--server, "+
		"--js-domain), or accounts of their own", allocator.ErrRefused, own.Installation, b.Node, b.Installation))
}

// installation is the ID of the installation; empty: not joined yet.
func (m *membership) installation() string {
	if id := m.identity.Load(); id != nil {
		return id.Installation
	}
	return ""
}
