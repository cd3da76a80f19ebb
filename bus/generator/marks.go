package generator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

// A generator takes the refills of the others for marks: what they reserved is
// evidence of how far the store was. Each is told at once, before an ID of it is
// handed out, to those who are there. What was told before that, or while the
// connection was away, is read from the stream, the last refill of each tag,
// before anything is reserved again. Events of refills are heard live as well:
// what was told may have been lost with a connection, and comes with them, later.
//
// The last event of a tag need not be of its last range: an event may have
// waited while the stream was away. So each is stamped, when it is published,
// with all that its generator has seen by then.

// headerSeen carries the end of all ranges of the tag that the publisher of a
// refill event had seen.
const headerSeen = "Leaf-Seen"

const (
	// echoWait is how long NATS may take to answer when it is not known whether it does.
	echoWait     = time.Second
	marksTimeout = 3 * time.Second
	// historyPatience is how long a stream that cannot be read postpones
	// refills; then they go on without that evidence.
	marksPatience = 15 * time.Second
)

// peerMarks is up to when the evidence is complete. The zero value is: never.
type peerMarks struct {
	complete atomic.Uint64 // the life of the connection (see evidence) it was read in

	mu     sync.Mutex // held while it is read
	wanted uint64     // the life of the connection it was last asked for in
	since  time.Time  // since when
}

// evidence implements allocator.Config.Evidence: it makes sure that the history
// was read since the connection last came back, and tells whether the
// connection was lost since.
func (g *Generator) evidence(ctx context.Context) (held func() bool, err error) {
	life := func() uint64 { return g.reconnects() + 1 }
	now := life()
	inTouch := func() bool {
		_, silent := g.group.pulse.silent(time.Now())
		return !silent && g.hears()
	}
	if !inTouch() && g.cfg.Conn.IsConnected() { // this process may have been stopped
		echo, cancel := context.WithTimeout(ctx, echoWait)
		_ = g.announce(echo) // looked at again below
		cancel()
	}
	pauses := g.group.pulse.pauses.Load()
	// A store that is not NATS may answer while this generator hears nobody. And an operator
	// may have moved max_id beyond the range during a pause.
	held = func() bool { return life() == now && inTouch() && g.group.pulse.pauses.Load() == pauses }
	if !held() {
		return nil, errors.New("the connection to NATS is away or hangs: the refills of other generators cannot be heard")
	}
	h := &g.marks
	if h.complete.Load() == now {
		return held, nil
	}

	h.mu.Lock() // across a wait, bounded by historyTimeout: the others need the same
	defer h.mu.Unlock()
	if h.complete.Load() == now {
		return held, nil
	}
	if h.wanted != now {
		h.wanted, h.since = now, time.Now()
	}
	ctx, cancel := context.WithTimeout(ctx, marksTimeout)
	defer cancel()
	if err = g.readStream(ctx); err != nil && time.Since(h.since) < marksPatience {
		return nil, fmt.Errorf("the refills of other generators cannot be read from the event stream: %w", err)
	}
	if err != nil {
		g.log.Warn("going on without the refills of other generators: the event stream cannot be read", "error", err)
	}
	h.complete.Store(now)
	return held, nil
}

// hears reports whether the connection brings what other generators say.
func (g *Generator) hears() bool {
	return g.cfg.Conn.IsConnected() && g.group.pulse.hears(time.Now())
}

// readPeerMarks reads the history if it is not complete.
func (g *Generator) readPeerMarks(ctx context.Context) error {
	_, err := g.evidence(ctx)
	return err
}

// stamp completes a refill event with what is known now.
func (g *Generator) stamp(ctx context.Context, msg *nats.Msg) error {
	tag, ok := strings.CutPrefix(msg.Subject, wire.RefillSubject)
	if !ok {
		return nil
	}
	if err := g.readPeerMarks(ctx); err != nil {
		return err
	}
	msg.Header[headerSeen] = []string{strconv.FormatInt(g.alloc.Seen(tag), 10)}
	return nil
}

// reserved is the message of a range that was reserved.
type reserved struct {
	Tag string `json:"tag"`
	End int64  `json:"end,string"` // the ID after the last
}

// publishReserved tells the other generators of a range. Events are not quick enough: they wait
// for one another, and for the stream's disk.
func (g *Generator) publishReserved(tag string, r allocator.Range) {
	if err := g.cfg.Conn.Publish(wire.SubjectReserved, wire.Encode(reserved{tag, r.Last + 1})); err != nil {
		g.log.Debug("a range is told by its event alone", "tag", tag, "error", err) // and given up, if NATS is away
	}
}

// heardReserved takes in a range, of another generator or its own.
func (g *Generator) heardReserved(msg *nats.Msg) {
	var r reserved
	err := json.Unmarshal(msg.Data, &r)
	if err == nil {
		err = allocator.CheckTag(r.Tag)
	}
	if err == nil && r.End < 1 {
		err = fmt.Errorf("no range ends at %d", r.End)
	}
	if err != nil {
		g.log.Warn("a reserved range that cannot be read", "error", err)
		return
	}
	g.alloc.Observe(r.Tag, r.End)
}

// heardRefill takes in the message of a refill.
func (g *Generator) heardRefill(msg *nats.Msg) { g.observeRefill(msg.Subject, msg.Header, msg.Data) }

func (g *Generator) observeRefill(subject string, header nats.Header, data []byte) {
	var body bus.RefillEvent
	if err := json.Unmarshal(data, &body); err != nil || body.Last < 1 || subject != wire.RefillSubject+body.Tag {
		g.log.Warn("a refill event that cannot be one", "subject", subject)
		return
	}
	seen, _ := wire.ParseID([]byte(header.Get(headerSeen))) // 0: not stamped
	g.alloc.Observe(body.Tag, max(seen, body.Last+1))
}

// readStream takes in the last refill of every tag that the stream has.
func (g *Generator) readStream(ctx context.Context) error {
	consumer, err := g.cfg.JS.OrderedConsumer(ctx, bus.EventStream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{wire.RefillSubject + ">"},
		DeliverPolicy:  jetstream.DeliverLastPerSubjectPolicy,
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil // a new installation
	}
	if err != nil {
		return err
	}
	if consumer.CachedInfo().NumPending == 0 {
		return nil
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, messages.Stop)
	defer stop()
	defer messages.Stop()
	for {
		msg, err := messages.Next()
		if err != nil {
			return errors.Join(err, ctx.Err())
		}
		g.observeRefill(msg.Subject(), msg.Headers(), msg.Data())
		if about, err := msg.Metadata(); err != nil || about.NumPending == 0 {
			return err
		}
	}
}
