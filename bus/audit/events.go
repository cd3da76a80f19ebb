package audit

import (
	"context"
	"fmt"
	"strings"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/nats-io/nats.go/jetstream"
)

// node is a generator whose events are read.
type node struct {
	name string // kept once, not for every event
	// The last of its refill events. A generator publishes one event after the other, so one that it published twice,
	// because the answer was lost, comes twice in a row.
	id     string
	refill events.Refill
}

// readEvents reads the events that the stream has now.
func (a *auditor) readEvents(ctx context.Context) error {
	if len(a.Tags) == 0 {
		return a.readSubject(ctx, allEvents)
	}
	for _, tag := range a.Tags {
		if err := a.readSubject(ctx, tagEvents+tag); err != nil {
			return err
		}
	}
	return nil
}

func (a *auditor) readSubject(ctx context.Context, subject string) error {
	read := uint64(0)
	return a.readAll(ctx, subject, jetstream.DeliverAllPolicy, func(msg jetstream.Msg, left uint64) {
		if read++; read%1000 == 0 {
			a.Progress("events", read, read+left)
		}
		a.event(msg)
	})
}

// event adds an event. It skips those that are about neither tags nor workers.
func (a *auditor) event(msg jetstream.Msg) {
	event, err := events.Parse(msg.Subject(), msg.Headers(), msg.Data())
	if err != nil {
		a.damaged(msg, err)
		return
	}
	if e, ok := event.Body.(events.Worker); ok && !isWorker(event, e) {
		a.damaged(msg, fmt.Errorf("the message on %q is about another worker: %.200s", msg.Subject(), event.Data))
		return
	}
	if e, ok := event.Body.(events.Refill); ok {
		if !isRefill(event, e) {
			a.damaged(msg, fmt.Errorf("the message on %q is not that of a refill: %.200s", msg.Subject(), event.Data))
			return
		}
		n := a.node(e.Node)
		e.Node = n.name
		if n.id == event.ID && n.refill == e {
			return
		}
		n.id, n.refill = event.ID, e
	}
	if about, err := msg.Metadata(); err == nil {
		a.last = max(a.last, about.Sequence.Stream)
	}
	if a.report.Events++; a.report.Since.IsZero() {
		a.report.Since = event.Time
	}
	switch e := event.Body.(type) {
	case events.Refill:
		a.tag(e.Tag).refill(event.Time, e)
	case events.Tag: // a deletion is no refill, and IDs below its end may be in no event
		if e.Tag == event.Key && allocator.CheckTag(e.Tag) == nil {
			a.tag(e.Tag).move(int64(e.MaxID))
		}
	}
}

// mostNode is the most characters of a node's name: a longer one is forged, and would fill tables and memory.
const mostNode = 64

// isRefill reports whether a body is that of a refill event.
func isRefill(event events.Event, e events.Refill) bool {
	return e.Tag == event.Key && e.First >= 1 && e.First <= e.Last && len(e.Node) <= mostNode && allocator.CheckTag(e.Tag) == nil
}

// isWorker reports whether a body is that of an event of the worker that the subject names.
func isWorker(event events.Event, e events.Worker) bool {
	return fmt.Sprint(e.Worker) == event.Key && max(len(e.Node), len(e.Holder)) <= mostNode
}

// readBodies calls f with the events on a subject that can be read, have a body of this type, and pass the check.
func readBodies[T any](
	ctx context.Context, from Source, subject string, check func(events.Event, T) bool, f func(jetstream.Msg, events.Event, T),
) error {
	return from.readAll(ctx, subject, jetstream.DeliverAllPolicy, func(msg jetstream.Msg, _ uint64) {
		event, err := events.Parse(msg.Subject(), msg.Headers(), msg.Data())
		if body, ok := event.Body.(T); err == nil && ok && check(event, body) {
			f(msg, event, body)
		}
	})
}

func (a *auditor) node(name string) *node {
	n := a.nodes[name]
	if n == nil {
		n = &node{name: strings.Clone(name)}
		a.nodes[n.name] = n
	}
	return n
}

func (a *auditor) tag(name string) *tagTrail {
	t := a.tags[name]
	if t == nil {
		t = &tagTrail{}
		a.tags[name] = t
	}
	return t
}

func (a *auditor) worker(number int64) *workerTrail {
	w := a.workers[number]
	if w == nil {
		w = &workerTrail{number: number}
		a.workers[number] = w
	}
	return w
}

// damaged notes a message that should be evidence, and cannot be read. It names the sequence number, for `nats stream
// rmm`.
func (a *auditor) damaged(msg jetstream.Msg, err error) {
	c := Contradiction{Kind: DamagedEvent, Message: place(msg) + ": " + err.Error()}
	subject := msg.Subject()
	found := &a.report.Contradictions
	tokens := strings.SplitN(subject, ".", 6)
	if tag, ok := strings.CutPrefix(subject, refillEvents); ok {
		if allocator.CheckTag(tag) == nil {
			c.Tag, found = tag, &a.tag(tag).damaged
		}
	} else if len(tokens) < 6 || tokens[3] != "worker" {
		return // not about who claimed what
	}
	if len(*found) < mostContradictions {
		*found = append(*found, c)
	}
}

// place says for people which message of the stream this is.
func place(msg jetstream.Msg) string {
	about, err := msg.Metadata()
	if err != nil {
		return "a message of " + events.Stream
	}
	return fmt.Sprintf("message %d of %s", about.Sequence.Stream, events.Stream)
}
