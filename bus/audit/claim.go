package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/bus/internal/stream"
	"github.com/leafbus/leafbus/internal/wire"
)

// mostNode is the most characters of a node's name: a longer one is forged, and would fill tables
// and memory.
const mostNode = 64

// claim is a claim of a range of a tag, by an event or by the tag's record.
type claim struct {
	bus.Range
	at      int64  // Unix time in ns, by the clock of the generator
	message uint64 // in the event stream; 0: the tag's record has the claim
	node    string
	cause   string
}

func recorded(c allocator.Claim) claim {
	return claim{Range: bus.Range{First: c.First, Last: c.Last}, at: c.Time.UnixNano(), node: c.Node}
}

func (c claim) time() time.Time { return time.Unix(0, c.at).UTC() }

func (c claim) String() string {
	source := "the tag's record"
	if c.message != 0 {
		source = place(c.message)
	}
	at := c.time().Format(time.RFC3339Nano)
	return fmt.Sprintf("%s claimed %d to %d at %s (%s)", c.node, c.First, c.Last, at, source)
}

// same reports whether both are the same claim: an event that was published twice, or an event and
// the record.
func (c claim) same(o claim) bool {
	return c.Range == o.Range && c.node == o.node && (c.at == o.at || c.message == 0 || o.message == 0)
}

// compareClaims orders claims by their ranges. Those that are the same are neighbours.
func compareClaims(x, y claim) int {
	return cmp.Or(cmp.Compare(x.First, y.First), cmp.Compare(x.Last, y.Last), strings.Compare(x.node, y.node),
		cmp.Compare(x.at, y.at), cmp.Compare(x.message, y.message))
}

// sorted returns events of claims in the order of compareClaims, each claim once, and with them the
// last claim of the record, if no event has it.
func sorted(claims []claim, last *allocator.Claim) []claim {
	slices.SortFunc(claims, compareClaims)
	claims = slices.CompactFunc(claims, claim.same)
	if last != nil && !slices.ContainsFunc(claims, recorded(*last).same) {
		claims = append(claims, recorded(*last))
		slices.SortFunc(claims, compareClaims)
	}
	return claims
}

// place says for people which message of the stream this is: `nats stream rmm` takes the number.
func place(message uint64) string { return fmt.Sprintf("message %d of %s", message, events.Stream) }

// damaged is the contradiction of a message that should be evidence, and cannot be read.
func damaged(tag string, message uint64, err error) Contradiction {
	return Contradiction{Kind: DamagedEvent, Tag: tag, Message: fmt.Sprintf("%s: %v", place(message), err)}
}

// readClaims calls f with each claim that the refill events of a tag report, or of all tags if tag
// is "", in the order of the stream. problem says why an event cannot be read. left is how many
// events are still to come.
func readClaims(
	ctx context.Context, js jetstream.JetStream, tag string, f func(tag string, c claim, problem error, left uint64),
) error {
	once := func(name string) string { return unique.Make(name).Value() } // one copy, not one for each event
	read := func(msg jetstream.Msg, message, left uint64) {
		name := strings.TrimPrefix(msg.Subject(), wire.RefillSubject)
		if idspace.CheckTag(name) != nil {
			return // no generator publishes that, and no tag has it
		}
		event, err := events.Parse(msg.Subject(), msg.Headers(), msg.Data())
		e, ok := event.Body.(events.Refill)
		if err == nil && (!ok || e.Tag != name || e.First < 1 || e.First > e.Last || len(e.Node) > mostNode) {
			err = fmt.Errorf("it is no refill event of %s", name)
		}
		if err != nil {
			f(once(name), claim{message: message}, err, left)
			return
		}
		f(once(name), claim{
			Range: bus.Range{First: e.First, Last: e.Last}, at: event.Time.UnixNano(), message: message,
			node: once(e.Node), cause: once(e.Cause),
		}, nil, left)
	}
	return stream.Read(ctx, js, events.Stream, wire.RefillSubject+cmp.Or(tag, ">"), jetstream.DeliverAllPolicy, read)
}
