package audit

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/wire"
)

// evidence is what an audit reads: a real stream of events, and records that the test sets.
type evidence struct {
	t       *testing.T
	js      jetstream.JetStream
	records map[string]Record
	onRead  func() // after the records were read
}

func newEvidence(t *testing.T) *evidence {
	t.Helper()
	js, err := jetstream.New(natskit.Connect(t, natskit.Start(t)))
	if err == nil {
		_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: events.Stream, Subjects: []string{events.Subjects}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return &evidence{t: t, js: js, records: make(map[string]Record), onRead: func() {}}
}

func (e *evidence) source() Source {
	return Source{JS: e.js, lag: 1, Records: func(_ context.Context, tag string, f func(Record)) error {
		defer e.onRead()
		for name, r := range e.records {
			if r.Tag = name; tag == "" || tag == name {
				f(r)
			}
		}
		return nil
	}}
}

// claimed sets how far a tag is claimed.
func (e *evidence) claimed(tag string, end int64, last *allocator.Claim) {
	e.records[tag] = Record{Order: idspace.OrderTrend, End: bus.ID(end), Last: last}
}

func (e *evidence) publish(msg *nats.Msg) {
	e.t.Helper()
	if _, err := e.js.PublishMsgAsync(msg, jetstream.WithStallWait(time.Minute)); err != nil {
		e.t.Fatal(err)
	}
}

// refill publishes a refill event. Its time is id milliseconds after an instant.
func (e *evidence) refill(tag, node string, first, last int64, id int) {
	e.t.Helper()
	body := events.Refill{Node: node, Tag: tag, First: first, Last: last, Step: 10, Cause: "demand"}
	e.publish(eventMessage("info.segment.refill", tag, id, wire.Encode(body)))
}

// eventMessage is an event without Nats-Msg-Id, so that it can be published twice.
func eventMessage(kind, key string, id int, body []byte) *nats.Msg {
	msg := nats.NewMsg(wire.SubjectEvents + "." + kind + "." + key)
	for name, value := range map[string]string{
		wire.HeaderSpec: "1.0", wire.HeaderID: fmt.Sprint("event-", id), wire.HeaderSource: "/leaf/n", wire.HeaderSubject: key,
		wire.HeaderTime: eventTime(id).Format(time.RFC3339Nano), wire.HeaderContent: wire.JSONType,
	} {
		msg.Header[name] = []string{value}
	}
	msg.Data = body
	return msg
}

func eventTime(id int) time.Time {
	return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(id) * time.Millisecond)
}

// audit audits these tags, or all.
func (e *evidence) audit(taken *Taken, tags ...string) *Report {
	e.t.Helper()
	<-e.js.PublishAsyncComplete()
	report, err := Run(e.t.Context(), e.source(), Options{Tags: tags, Taken: taken})
	if err != nil {
		e.t.Fatal(err)
	}
	return report
}

// kinds are the kinds of contradictions of a tag, each once, as one text.
func kinds(found []Contradiction, tag string) string {
	var names []string
	for _, c := range found {
		if c.Tag == tag {
			names = append(names, string(c.Kind))
		}
	}
	slices.Sort(names)
	return fmt.Sprint(slices.Compact(names))
}
