package generator

import (
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/wire"
)

// joined is the membership of a generator that has joined an installation; empty: it has not.
func joined(b *base, installation string) *membership {
	m := &membership{base: b}
	if installation != "" {
		m.identity.Store(&Identity{Installation: installation})
		b.group.join(installation)
	}
	return m
}

// One generator compares the database with the records: the one with the lowest run of those that could do it last.
func TestLeads(t *testing.T) {
	t.Parallel()
	own := Identity{Installation: "own"}
	for name, c := range map[string]struct {
		heartbeat
		age   time.Duration
		leads bool
	}{
		"a lower run":                {heartbeat{ID: "b", Polls: true, Identity: own}, 0, false},
		"a lower run that could not": {heartbeat{ID: "b", Identity: own}, 0, true},
		"a lower run that is silent": {heartbeat{ID: "b", Polls: true, Identity: own}, heartbeatExpires, true},
		"a lower run of another installation": {
			heartbeat{ID: "b", Polls: true, Identity: Identity{Installation: "other"}}, 0, true},
		"a higher run": {heartbeat{ID: "d", Polls: true, Identity: own}, 0, true},
	} {
		x := &exchange{base: &base{group: newGroup("c")}}
		x.group.join("own")
		if !x.leads() {
			t.Error("alone it does not lead")
		}
		if x.group.hear(time.Now().Add(-c.age), 0, wire.Encode(c.heartbeat)); x.leads() != c.leads {
			t.Errorf("beside %s: leads %v", name, !c.leads)
		}
	}
}
