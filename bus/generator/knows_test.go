package generator

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus/internal/wire"
)

// While one question is under way, the next one collects names, up to a bound.
func TestQuestions(t *testing.T) {
	t.Parallel()
	var q questions
	first, start := q.add("a")
	if !start || q.next() != first || !first.names["a"] {
		t.Fatal("the first name is not asked for")
	}
	b, start := q.add("b")
	if again, _ := q.add("c"); start || again != b || b == first {
		t.Error("names that come while a question is under way do not share the next one")
	}
	for i := range mostAsked {
		q.add(fmt.Sprint(i))
	}
	if q.next() != b || len(b.names) != mostAsked {
		t.Errorf("the next question has %d names, want %d", len(b.names), mostAsked)
	}
	if rest := q.next(); rest == nil || len(rest.names) != 2 || q.next() != nil {
		t.Error("the rest is not asked for, or too much is")
	}
	if _, start := q.add("d"); !start {
		t.Error("nobody asks any more")
	}
}

// All generators of this installation must answer, those too of which only the folder names it.
func TestWhoMustAnswer(t *testing.T) {
	t.Parallel()
	own := Identity{Installation: "own"}
	g := &Generator{group: newGroup("me")}
	g.membership.identity.Store(&own)
	for _, b := range []heartbeat{
		{Node: "a", ID: "1", Identity: own}, {Node: "b", ID: "2", Witness: "own"}, {Node: "c", ID: "3"},
		{Node: "d", ID: "4", Identity: Identity{Installation: "other"}}, {Node: "e", ID: "5", Witness: "other"},
		{Node: "f", ID: "6", Identity: own},
	} {
		g.group.hear(time.Now(), 0, wire.Encode(b))
	}
	if got := g.silent(map[string]bool{"6": true}); !slices.Equal(got, []string{"a", "b"}) {
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
		g := &Generator{group: newGroup("c")}
		g.membership.identity.Store(&own)
		if !g.leads() {
			t.Error("alone it does not lead")
		}
		if g.group.hear(time.Now().Add(-c.age), 0, wire.Encode(c.heartbeat)); g.leads() != c.leads {
			t.Errorf("beside %s: leads %v", name, !c.leads)
		}
	}
}
