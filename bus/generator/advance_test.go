package generator_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
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

func wantAdvance(t *testing.T, got bus.TagAdvance, err error, tag string, was, to bus.ID) {
	t.Helper()
	if err != nil || got.Tag != tag || got.Was != was || got.MaxID != to || len(got.Unheard) > 0 || got.Step != 1000 {
		t.Errorf("%+v, %v; want %s from %d to %d", got, err, tag, was, to)
	}
}

// After a restore of JetStream a running generator may be the only one that knows how far a tag was.
// Whichever is asked, max_id is moved there, and none goes on with what it holds.
func TestAdvanceToWhatAPeerKnows(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	var tags []string
	for i := range 20 { // so that one that knows nothing is asked about some of them
		tags = append(tags, fmt.Sprintf("order.%d", i))
	}
	restore := kvTags(t, s, nc, tags...)
	knows := start(t, s, "knows", nil, func(c *generator.Config) {
		inKV(c)
		c.MaxWait = testkit.Patience
		c.OpenEvents = func(context.Context) error { return errors.New("no events here") }
	})
	for _, tag := range tags {
		if _, err := knows.Take(t.Context(), tag, 1); err != nil {
			t.Fatal(err)
		}
	}
	restore()
	start(t, s, "new", nil, inKV)
	stream := events(t, nc)
	for _, tag := range tags {
		got, err := bus.NewClient(nc).AdvanceTag(t.Context(), tag)
		wantAdvance(t, got, err, tag, 1, 1001)
		if ranges, err := knows.Take(t.Context(), tag, 1); err != nil || ranges[0].First < int64(got.MaxID) {
			t.Errorf("after that it hands out %v of %s, %v", ranges, tag, err)
		}
		again, err := bus.NewClient(nc).AdvanceTag(t.Context(), tag)
		if err != nil || again.Was < got.MaxID || again.MaxID != again.Was {
			t.Errorf("once more: %+v, %v", again, err)
		}
	}
	testkit.Eventually(t, "the one that knew nothing was asked too", func() bool {
		return len(stream("leaf.tag.updated")) > 0 // the other one publishes no events
	})
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
	got, err := bus.NewClient(nc).AdvanceTag(t.Context(), "order")
	wantAdvance(t, got, err, "order", 1, 1001)
	got, err = bus.NewClient(nc).AdvanceTag(t.Context(), "order.eu")
	if err != nil || got.Was != 1 || got.MaxID < 7001 { // it may have reserved the next range ahead
		t.Errorf("%+v, %v; want order.eu from 1 to 7001 or above", got, err)
	}
	if body, code := ask(t, nc, "leaf.segment.order", ""); body != "1001" || code != "" {
		t.Errorf("the next ID is %q, code %q", body, code)
	}
}

// A database is moved up to the ledger.
func TestAdvanceToTheLedger(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	store := thousands(t)
	before := store.Snapshot()
	gone := start(t, s, "gone", store, func(c *generator.Config) {
		withLedger(t)(c)
		c.OpenEvents = func(context.Context) error { return errors.New("no events here") }
	})
	if _, err := gone.Take(t.Context(), "order", 1); err != nil {
		t.Fatal(err)
	}
	if err := gone.stop(); err != nil {
		t.Fatal(err)
	}
	store.Restore(before)
	start(t, s, "new", store, withLedger(t))
	got, err := bus.NewClient(nc).AdvanceTag(t.Context(), "order")
	wantAdvance(t, got, err, "order", 1001, 1001)
	if tag, err := store.Get(t.Context(), "order"); err != nil || tag.MaxID != 1001 {
		t.Errorf("the database has %+v, %v", tag, err)
	}
}

// What another program reserved in the database is claimed, also if max_id stays where it is. The answer says so, once.
func TestAdvanceClaimsWhatAnotherProgramReserved(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	store := thousands(t)
	start(t, s, "n", store, withLedger(t))
	if body, code := ask(t, nc, "leaf.segment.order", ""); body != "1" || code != "" {
		t.Fatalf("the first ID is %q, code %q", body, code)
	}
	if _, err := store.Reserve(t.Context(), "order", 3000, 0); err != nil {
		t.Fatal(err)
	}
	for _, from := range []bus.ID{1001, 0} {
		got, err := bus.NewClient(nc).AdvanceTag(t.Context(), "order")
		if wantAdvance(t, got, err, "order", 4001, 4001); got.ClaimedFrom != from {
			t.Errorf("it claimed from %d on, want %d", got.ClaimedFrom, from)
		}
	}
}

// overtaken is a store in which another generator reserves after each Get.
type overtaken struct {
	allocator.Store
	races int
}

func (s *overtaken) Get(ctx context.Context, tag string) (allocator.Tag, error) {
	t, err := s.Store.Get(ctx, tag)
	if s.races--; s.races >= 0 {
		if _, err := s.Store.Reserve(ctx, tag, 1, 0); err != nil {
			return t, err
		}
	}
	return t, err
}

// A generator that reserves meanwhile is no conflict.
func TestAdvanceUnderLoad(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	start(t, s, "n", &overtaken{thousands(t), 3}, nil)
	got, err := bus.NewClient(nc).AdvanceTag(t.Context(), "order")
	wantAdvance(t, got, err, "order", 3001, 3001)
}

// A generator that runs and does not answer may know more than all others. Then nothing is moved.
func TestAdvanceNeedsAllAnswers(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	store := thousands(t)
	start(t, s, "n", store, nil)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() { // it is heard, and confirms nothing
		defer close(done)
		for {
			if err := nc.Publish("leaf.internal.presence", []byte(`{"node":"mute","id":"x"}`)); err != nil {
				t.Error(err)
			}
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	defer func() { close(stop); <-done }()
	client := bus.NewClient(nc)
	testkit.Eventually(t, "it is refused", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := client.AdvanceTag(ctx, "order")
		return errors.Is(err, bus.TimedOut)
	})
	before, err := store.Get(t.Context(), "order")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	got, err := client.AdvanceTag(ctx, "order")
	if tag, stored := store.Get(t.Context(), "order"); err == nil || stored != nil || tag != before {
		t.Errorf("it answers %+v, %v; the store has %+v", got, err, tag)
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
	got, err := bus.NewClient(nc).AdvanceTag(t.Context(), "order")
	wantAdvance(t, got, err, "order", 1, 9001)
}

func TestAdvanceRefused(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	store := memory(t, "order", "deleted")
	if _, err := store.Delete(t.Context(), "deleted", 0); err != nil {
		t.Fatal(err)
	}
	start(t, s, "n", store, nil)
	client := bus.NewClient(nc)
	for tag, want := range map[string]bus.Reason{
		"unknown": bus.UnknownTag, "deleted": bus.UnknownTag, "": bus.BadTag, "a b": bus.BadTag, "order.": bus.BadTag,
	} {
		if got, err := client.AdvanceTag(t.Context(), tag); !errors.Is(err, want) {
			t.Errorf("%q: %+v, %v; want %s", tag, got, err, want)
		}
	}
	for _, body := range []string{"[]", "{", `{"tag":"order","max_id":"5"}`, `{"tag":7}`} {
		if reply, code := ask(t, nc, "leaf.admin.tags.advance", body); code != "400" {
			t.Errorf("%s: %s, code %q", body, reply, code)
		}
	}
	if body, code := ask(t, nc, "leaf.admin.tags.advance", `{"tag":"order"}`); code != "" {
		t.Errorf("%s, code %q", body, code)
	}
}
