package bus

import (
	"fmt"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// Identity says which installation a generator belongs to. The zero value is
// that of a generator that has not joined one yet.
type Identity struct {
	Installation string    `json:"installation,omitempty"` // its random ID
	Created      time.Time `json:"created,omitzero"`
	// Foreign says why the registry of workers is not to be used: what keeps
	// the segments belongs to another installation. nil: it may be used.
	Foreign error `json:"-"`
	// NoEvents: the NATS has no JetStream, so there is no stream of events.
	NoEvents bool `json:"-"`
}

// yieldsTo reports whether generators of i must not serve beside those of the
// other: the older installation stays.
func (i Identity) yieldsTo(other Identity) bool {
	switch {
	case i.Installation == "" || other.Installation == "" || i.Installation == other.Installation:
		return false
	case i.Created.Equal(other.Created):
		return i.Installation > other.Installation
	}
	return i.Created.After(other.Created)
}

// checkRivals ends the generator if one of an older installation is heard.
//
// Callers of one subject space must get IDs of one installation. Two come
// about where servers with a JetStream each are linked, say by leaf nodes.
func (g *Generator) checkRivals(now time.Time) {
	own := g.identity.Load()
	if own == nil {
		return
	}
	for _, b := range g.presence.present(now) {
		if !own.yieldsTo(b.Identity) {
			continue
		}
		err := fmt.Errorf("%w: this generator is of installation %s, but %s, which answers on the same subjects, is of the older %s: "+
			"callers would get the same IDs from both; give all generators the same JetStream (--server, --js-domain), or accounts of their own",
			allocator.ErrRefused, own.Installation, b.Node, b.Installation)
		select {
		case g.rival <- err:
		default: // said already
		}
		return
	}
}
