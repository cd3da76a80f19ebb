package generator_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
)

// inKV makes a generator keep its tags in JetStream.
func inKV(c *generator.Config) {
	kept := newKept(c.Conn, c.JS)
	joined(installation)(c)
	c.Records, c.Keys, c.StoreKind, c.Open = kept.Records, kept.keys, "kv", kept.open
}

// installation is the one of the tests that keep tags in JetStream.
const installation = "ours"

// kept are the records and the keys of one generator in JetStream.
type kept struct {
	*kvstore.Records
	keys  generator.Keys
	state kvstore.Config
}

func newKept(nc *nats.Conn, js jetstream.JetStream) kept {
	state := kvstore.Config{JS: js, Log: testkit.Quiet}
	return kept{kvstore.NewRecords(state), kvstore.NewKeys(state), state}
}

func (k kept) open(ctx context.Context) error {
	ours := kvstore.Installation{ID: installation}
	if err := kvstore.CreateInstallation(ctx, k.state, ours); err != nil {
		return err
	}
	return k.Records.Open(ctx, ours)
}

// kvTags creates tags in JetStream, and returns the records, and a function that sets them all back to how they are
// now, as a restore does.
func kvTags(t *testing.T, s *embedded.Server, nc *nats.Conn, tags ...string) (records kept, restore func()) {
	t.Helper()
	records = inJetStream(t, s)
	kv := tagsBucket(t, nc)
	were := make(map[string][]byte)
	for _, tag := range tags {
		add(t, records, allocator.Tag{Name: tag, Step: 1000})
		record, err := kv.Get(t.Context(), tag)
		if err != nil {
			t.Fatal(err)
		}
		were[tag] = record.Value()
	}
	return records, func() {
		t.Helper()
		for tag, record := range were {
			if _, err := kv.Put(t.Context(), tag, record); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func tagsBucket(t *testing.T, nc *nats.Conn) jetstream.KeyValue {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), wire.BucketTags)
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

func wantAdvance(t *testing.T, got admin.TagAdvance, err error, tag string, was, to bus.ID) {
	t.Helper()
	if err != nil || got.Tag != tag || got.Was != was || got.MaxID != to || len(got.Unheard) > 0 || got.Step != 1000 {
		t.Errorf("%+v, %v; want %s from %d to %d", got, err, tag, was, to)
	}
}

// After a restore of JetStream a running generator raises the records to what it knows, rules included. One alert a
// tag says so, and no operator must do anything.
func TestRestoreIsRaised(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	tags := []string{"a", "b", "c"}
	records, restore := kvTags(t, s, nc, tags...)
	knows := start(t, s, "knows", nil, inKV)
	stream := eventsOn(t, nc)
	for _, tag := range tags {
		knows.takeAll(t, tag, 1)
		update(t, nc, `{"tag":"`+tag+`","limit":"5000"}`)
	}
	restore()
	for _, tag := range tags {
		testkit.Eventually(t, "the record of "+tag+" is raised", func() bool {
			s, err := records.Load(t.Context(), tag)
			return err == nil && s.MaxID == 1001 && s.Limit == 5000
		})
	}
	testkit.Eventually(t, "the alerts", func() bool { return len(stream("leaf.segment.regressed")) == len(tags) })
	for _, e := range stream("leaf.segment.regressed") {
		if got := e.Body.(events.Regressed); got.Got != 1 || got.Seen != 1001 || got.Action != string(allocator.Advanced) {
			t.Errorf("the alert is %+v", got)
		}
	}
	fresh := start(t, s, "new", nil, inKV)
	for _, tag := range tags {
		// The other one lends some of 2 to 1000 if a refill takes long.
		if ranges, err := fresh.Take(t.Context(), tag, 1); err != nil || ranges[0].First < 2 {
			t.Errorf("%s goes on with %v, %v", tag, ranges, err)
		}
	}
}

// What no running generator knows, the last refill event and an operator do. A generator that claimed IDs, and is not
// heard, may know more: then the operator must say so.
func TestAdvanceBeyondASilentGenerator(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	_, restore := kvTags(t, s, nc, "order", "order.eu", "order.us")
	gone := start(t, s, "gone", nil, inKV)
	for tag, n := range map[string]int64{"order": 1, "order.eu": 7000, "order.us": 1} {
		gone.takeAll(t, tag, n)
	}
	if err := gone.stop(); err != nil {
		t.Fatal(err)
	}
	restore()
	fresh := start(t, s, "new", nil, inKV)
	client := admin.NewClient(nc)
	refused := func(node string, req admin.AdvanceRequest) {
		t.Helper()
		var got admin.TagAdvance
		var err error
		testkit.Eventually(t, "an answer of a generator that did not stand still", func() bool {
			got, err = client.AdvanceTag(t.Context(), req)
			return !errors.Is(err, bus.TimedOut)
		})
		if !errors.Is(err, bus.Conflict) || !strings.Contains(err.Error(), "generator "+node) {
			t.Errorf("%+v, %v; want a refusal that names %s", got, err, node)
		}
	}
	refused("gone", admin.AdvanceRequest{Tag: "order"})
	refused("gone", admin.AdvanceRequest{Tag: "order", Without: []string{"other"}})
	got, err := client.AdvanceTag(t.Context(), admin.AdvanceRequest{Tag: "order", Without: []string{"gone"}})
	wantAdvance(t, got, err, "order", 1, 1001)
	got, err = client.AdvanceTag(t.Context(), admin.AdvanceRequest{Tag: "order.eu", Without: []string{"gone"}})
	if err != nil || got.Was != 1 || got.MaxID < 7001 { // it may have reserved the next range ahead
		t.Errorf("%+v, %v; want order.eu from 1 to 7001 or above", got, err)
	}
	high := bus.ID(9000)
	got, err = client.AdvanceTag(t.Context(), admin.AdvanceRequest{Tag: "order.us", MaxID: &high})
	wantAdvance(t, got, err, "order.us", 1, 9000)
	if body, code := ask(t, nc, "leaf.segment.order.us", ""); body != "9000" || code != "" {
		t.Errorf("the next ID is %q, code %q", body, code)
	}
	if err := fresh.stop(); err != nil { // from now on the record has its claim
		t.Fatal(err)
	}
	start(t, s, "newer", nil, inKV)
	js, err := jetstream.New(nc)
	if err == nil {
		err = js.DeleteStream(t.Context(), events.Stream)
	}
	if err != nil {
		t.Fatal(err)
	}
	refused("new", admin.AdvanceRequest{Tag: "order.us", Without: []string{"gone"}})
}

// A generator that has just started may not have heard of one that runs and knows more.
func TestAdvanceAsksAllThatRun(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	reply := func(subject string, answer func(*nats.Msg)) {
		t.Helper()
		if _, err := nc.Subscribe(subject, answer); err != nil {
			t.Fatal(err)
		}
	}
	reply(wire.SubjectPresence, func(msg *nats.Msg) {
		if strings.Contains(string(msg.Data), `"asks":true`) {
			nc.Publish(wire.SubjectPresence, []byte(`{"node":"knows","id":"x"}`))
		}
	})
	reply(wire.SubjectRecord, func(msg *nats.Msg) { msg.Respond([]byte(`{"run":"x","end":"9001","floor":"9001"}`)) })
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	start(t, s, "n", thousands(t), nil)
	got, err := admin.NewClient(nc).AdvanceTag(t.Context(), admin.AdvanceRequest{Tag: "order"})
	wantAdvance(t, got, err, "order", 1, 9001)
}
