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

// checkRival ends the generator if another is of an older installation.
//
// Callers of one subject space must get IDs of one installation. Two come
// about where servers with a JetStream each are linked, say by leaf nodes.
func (g *Generator) checkRival(b beat) {
	own := g.identity.Load()
	if own == nil || !own.yieldsTo(b.Identity) {
		return
	}
	err := fmt.Errorf("%w: this generator is of installation %s, but %s, which answers on the same subjects, is of the older %s: "+
		"callers would get the same IDs from both; give all generators the same JetStream (--server, --js-domain), or accounts of their own",
		allocator.ErrRefused, own.Installation, b.Node, b.Installation)
	select {
	case g.rival <- err:
	default: // said already
	}
}
