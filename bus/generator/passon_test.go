package generator

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/internal/wire"
)

// Requests for a strict tag are passed on to a generator of this installation alone, and to none that cannot serve them, as one that
// stops. Another installation has a tag of the same name, with the same IDs.
func TestClaimer(t *testing.T) {
	t.Parallel()
	g := &Generator{group: newGroup("me"), cfg: Config{Conn: new(nats.Conn)}}
	own := Identity{Installation: "own"}
	g.membership.identity.Store(&own)
	for _, b := range []heartbeat{
		{Node: "one", ID: "1", Strict: true, Segment: true, Identity: own},
		{Node: "two", ID: "2", Strict: true, Segment: true, Identity: Identity{Installation: "other"}},
		{Node: "three", ID: "3", Strict: true, Segment: false, Identity: own},
		{Node: "four", ID: "4", Strict: false, Segment: true, Identity: own},
		{Node: "five", ID: "5", Strict: true, Segment: true},
		{Node: "six", ID: "6", Strict: true, Segment: true, Identity: Identity{Installation: "other"}},
		{Node: "six", ID: "7", Strict: true, Segment: true, Identity: own},
		{Node: "six", ID: "8", Strict: true, Segment: false, Identity: own},
	} {
		g.group.hear(time.Now(), 0, wire.Encode(b))
	}
	for node, want := range map[string]string{"one": "1", "two": "", "three": "", "four": "", "five": "", "six": "7", "seven": "", "me": ""} {
		if run := g.claimer(node); run != want {
			t.Errorf("%s: %q, want %q", node, run, want)
		}
	}
}
