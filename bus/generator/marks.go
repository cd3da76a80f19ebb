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

// Peer marks are how far other generators have reserved each tag. A range of the store that begins
// below shows that the store went backwards. Three sources report them:
//
//	leaf.internal.reserved  live: the end of each range, before its generator hands out an ID of it
//	refill events, live     later: they repeat what was lost with a connection
//	refill events, stored   the last event of each tag, read at a start and after each reconnect,
//	                        before this generator reserves again
//
// The last stored event of a tag need not be about its last range: an event may have waited
// while the stream was unavailable. So each event carries all that its generator has seen when it
// is published.

// headerSeen of a refill event is the end of all ranges of the tag that its publisher has seen.
const headerSeen = "Leaf-Seen"

const (
	// echoWait is how long NATS may take to answer when a heartbeat is overdue.
	echoWait     = time.Second
	marksTimeout = 3 * time.Second
	// marksPatience is how long a stream that cannot be read postpones refills. Then refills
	// go on without the marks in it.
	marksPatience = 15 * time.Second
)

// peerMarks is for which connection the stored events have been read. Connections count from 1.
type peerMarks struct {
	complete atomic.Uint64 // the connection for which they were read; 0: none

	mu     sync.Mutex // held while they are read
	wanted uint64     // the connection for which they were wanted last
	since  time.Time  // since when
}

// evidence implements allocator.Config.Evidence. It makes sure that the peer marks are complete,
// and fails if they cannot be. held reports whether no peer mark can have been missed since.
func (g *Generator) evidence(ctx context.Context) (held func() bool, err error) {
	connection := g.reconnects() + 1
	inTouch := func() bool {
		_, silence := g.group.pulse.silence(time.Now())
		return silence <= silentAfter && g.cfg.Conn.IsConnected()
	}
	if !inTouch() && g.cfg.Conn.IsConnected() { // this process may have stood still
		echo, cancel := context.WithTimeout(ctx, echoWait)
		_ = g.announce(echo) // held looks at the result
		cancel()
	}
	pauses := g.group.pulse.pauses.Load()
	// A store that is not NATS may answer while this generator is cut off. And during a pause an operator
	// may have moved max_id beyond the range.
	held = func() bool {
		return g.reconnects()+1 == connection && inTouch() && g.group.pulse.pauses.Load() == pauses
	}
	if !held() {
		return nil, errors.New("the connection to NATS is lost or hangs: the refills of other generators cannot be heard")
	}
	return held, g.completeMarks(ctx, connection)
}

// completeMarks reads the stored events, once for each connection.
func (g *Generator) completeMarks(ctx context.Context, connection uint64) error {
	m := &g.marks
	if m.complete.Load() == connection {
		return nil
	}
	m.mu.Lock() // across a wait that marksTimeout bounds: other refills need the same
	defer m.mu.Unlock()
	if m.complete.Load() == connection {
		return nil
	}
	if m.wanted != connection {
		m.wanted, m.since = connection, time.Now()
	}
	ctx, cancel := context.WithTimeout(ctx, marksTimeout)
	defer cancel()
	if err := g.readStream(ctx); err != nil {
		if time.Since(m.since) < marksPatience {
			return fmt.Errorf("the refills of other generators cannot be read from the event stream: %w", err)
		}
		g.log.Warn("the event stream cannot be read: going on without the refills of other generators in it", "error", err)
	}
	m.complete.Store(connection)
	return nil
}

// readPeerMarks completes the peer marks.
func (g *Generator) readPeerMarks(ctx context.Context) error {
	_, err := g.evidence(ctx)
	return err
}

// stamp sets the header headerSeen of a refill event.
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

// reserved is the message about a range that was reserved.
type reserved struct {
	Tag string `json:"tag"`
	End int64  `json:"end,string"` // the ID after the last
}

// publishReserved reports a range to the other generators. Events are not quick enough: they wait
// for one another, and for the stream's disk.
func (g *Generator) publishReserved(tag string, r allocator.Range) {
	if err := g.cfg.Conn.Publish(wire.SubjectReserved, wire.Encode(reserved{tag, r.Last + 1})); err != nil {
		// If NATS is away, the range is not used.
		g.log.Debug("a range cannot be reported at once: only its event reports it", "tag", tag, "error", err)
	}
}

// heardReserved notes a range, of another generator or its own.
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
		g.log.Warn("a message about a reserved range cannot be read", "error", err)
		return
	}
	g.alloc.Observe(r.Tag, r.End)
}

// observeRefill notes a refill event.
func (g *Generator) observeRefill(subject string, header nats.Header, data []byte) {
	var body bus.RefillEvent
	if err := json.Unmarshal(data, &body); err != nil || body.Last < 1 || subject != wire.RefillSubject+body.Tag {
		g.log.Warn("a refill event is ignored, because it cannot be one", "subject", subject)
		return
	}
	seen, _ := wire.ParseID([]byte(header.Get(headerSeen))) // 0: not stamped
	g.alloc.Observe(body.Tag, max(seen, body.Last+1))
}

// readStream notes the last refill event of every tag in the stream.
func (g *Generator) readStream(ctx context.Context) error {
	consumer, err := g.cfg.JS.OrderedConsumer(ctx, bus.EventStream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{wire.RefillSubject + ">"},
		DeliverPolicy:  jetstream.DeliverLastPerSubjectPolicy,
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil // a new installation
	}
	if err != nil || consumer.CachedInfo().NumPending == 0 {
		return err
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
