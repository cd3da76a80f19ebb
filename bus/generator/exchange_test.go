package generator

import (
	"slices"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/wire"
)

// joined is the membership of a generator that has joined an installation; empty: it has not.
func joined(b *base, installation string) *membership {
	m := &membership{base: b}
	if installation != "" {
		m.identity.Store(&Identity{Installation: installation})
	}
	return m
}

// All generators of this installation must answer, those too of which only the folder names it.
func TestWhoMustAnswer(t *testing.T) {
	t.Parallel()
	own := Identity{Installation: "own"}
	var got []string
	x := &exchange{base: &base{membership: joined(nil, "own")}}
	for _, b := range []heartbeat{
		{Node: "a", ID: "1", Identity: own}, {Node: "b", ID: "2", Witness: "own"}, {Node: "c", ID: "3"},
		{Node: "d", ID: "4", Identity: Identity{Installation: "other"}}, {Node: "e", ID: "5", Witness: "other"},
	} {
		if x.mayKnow(b) {
			got = append(got, b.Node)
		}
	}
	if !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("waits for %v, not for a and b", got)
	}
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
		x := &exchange{base: &base{group: newGroup("c"), membership: joined(nil, "own")}}
		if !x.leads() {
			t.Error("alone it does not lead")
		}
		if x.group.hear(time.Now().Add(-c.age), 0, wire.Encode(c.heartbeat)); x.leads() != c.leads {
			t.Errorf("beside %s: leads %v", name, !c.leads)
		}
	}
}
