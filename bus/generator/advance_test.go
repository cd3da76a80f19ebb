package generator_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// inKV makes a generator keep its tags in JetStream.
func inKV(c *generator.Config) {
	store := kvstore.New(kvstore.Config{Conn: c.Conn, JS: c.JS, Log: testkit.Quiet})
	c.Store, c.StoreKind, c.Open, c.Marks = store, "kv", store.Open, allocator.NewMarks()
	c.Records, c.Keys = store, store
}

// kvTags creates tags in JetStream, and returns a function that sets them all back to how they are now, as a
// restore does.
func kvTags(t *testing.T, s *embedded.Server, nc *nats.Conn, tags ...string) (restore func()) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	store := kvstore.New(kvstore.Config{Conn: nc, JS: js, Log: testkit.Quiet})
	if err := store.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), bus.BucketTags)
	if err != nil {
		t.Fatal(err)
	}
	records := make(map[string][]byte)
	for _, tag := range tags {
		if _, err := store.Create(t.Context(), allocator.Tag{Name: tag, MaxID: 1, Step: 1000}); err != nil {
			t.Fatal(err)
		}
		record, err := kv.Get(t.Context(), tag)
		if err != nil {
			t.Fatal(err)
		}
		records[tag] = record.Value()
	}
	return func() {
		t.Helper()
		for tag, record := range records {
			if _, err := kv.Put(t.Context(), tag, record); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func wantAdvance(t *testing.T, got admin.TagAdvance, err error, tag string, was, to bus.ID) {
	t.Helper()
	if err != nil || got.Tag != tag || got.Was != was || got.MaxID != to || len(got.Unheard) > 0 || got.Step != 1000 {
		t.Errorf("%+v, %v; want %s from %d to %d", got, err, tag, was, to)
	}
}

// After a restore of JetStream a running generator may be the only one that knows how far a tag was. Whichever is asked, max_id is moved
// there, and none goes on with what it holds.
func TestAdvanceToWhatAPeerKnows(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	tags := []string{"a", "b", "c", "d", "e", "f", "g", "h"} // so that one that knows nothing is asked about some of them
	restore := kvTags(t, s, nc, tags...)
	knows := start(t, s, "knows", nil, func(c *generator.Config) {
		inKV(c)
		c.MaxWait = testkit.Patience
		c.OpenEvents = func(context.Context) error { return errors.New("no events here") }
	})
	for _, tag := range tags {
		knows.takeAll(t, tag, 1)
	}
	restore()
	start(t, s, "new", nil, inKV)
	for _, tag := range tags {
		got, err := admin.NewClient(nc).AdvanceTag(t.Context(), tag)
		wantAdvance(t, got, err, tag, 1, 1001)
		if ranges, err := knows.Take(t.Context(), tag, 1); err != nil || ranges[0].First < int64(got.MaxID) {
			t.Errorf("after that it hands out %v of %s, %v", ranges, tag, err)
		}
	}
}

// Where no generator knows, the last refill event of the tag does.
func TestAdvanceToWhatAnEventKnows(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	restore := kvTags(t, s, nc, "order", "order.eu")
	gone := start(t, s, "gone", nil, inKV)
	for tag, n := range map[string]int64{"order": 1, "order.eu": 7000} {
		if _, err := gone.Take(t.Context(), tag, n); err != nil {
			t.Fatal(err)
		}
	}
	if err := gone.stop(); err != nil {
		t.Fatal(err)
	}
	restore()
	start(t, s, "new", nil, inKV)
	got, err := admin.NewClient(nc).AdvanceTag(t.Context(), "order")
	wantAdvance(t, got, err, "order", 1, 1001)
	got, err = admin.NewClient(nc).AdvanceTag(t.Context(), "order.eu")
	if err != nil || got.Was != 1 || got.MaxID < 7001 { // it may have reserved the next range ahead
		t.Errorf("%+v, %v; want order.eu from 1 to 7001 or above", got, err)
	}
	if body, code := ask(t, nc, "leaf.segment.order", ""); body != "1001" || code != "" {
		t.Errorf("the next ID is %q, code %q", body, code)
	}
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
	reply("$SRV.PING.leaf", func(msg *nats.Msg) { // its heartbeat comes after that
		msg.Respond([]byte(`{"name":"leaf","id":"x","metadata":{"node":"knows"}}`))
		nc.Publish("leaf.internal.presence", []byte(`{"node":"knows","id":"x"}`))
	})
	reply("leaf.internal.tag", func(msg *nats.Msg) { msg.Respond([]byte(`{"id":"x","seen":"9001"}`)) })
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	start(t, s, "n", thousands(t), nil)
	got, err := admin.NewClient(nc).AdvanceTag(t.Context(), "order")
	wantAdvance(t, got, err, "order", 1, 9001)
}
