package kvstore

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/tests/kit"
)

// A bucket that could lose records by itself, or give old ones, is refused by each who looks it up.
func TestBucketRefused(t *testing.T) {
	t.Parallel()
	every := map[string]func(*jetstream.StreamConfig){
		"an age limit":             func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"per-key TTLs":             func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true },
		"asynchronous persistence": func(c *jetstream.StreamConfig) { c.PersistMode = jetstream.AsyncPersistMode },
		"memory storage":           func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"another retention":        func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy },
		"a size limit":             func(c *jetstream.StreamConfig) { c.Discard, c.MaxMsgs = jetstream.DiscardOld, 10 },
	}
	ofTags := map[string]func(*jetstream.StreamConfig){
		"direct reads":               func(c *jetstream.StreamConfig) { c.AllowDirect = true },
		"purge or roll up":           func(c *jetstream.StreamConfig) { c.DenyPurge, c.AllowRollup = false, true },
		"one message a subject":      func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 2 },
		"discard new":                func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld },
		"no first sequence":          func(c *jetstream.StreamConfig) { c.FirstSeq = 0 },
		"other subjects":             func(c *jetstream.StreamConfig) { c.Subjects = []string{"$KV.LEAF_TAGS.order"} },
		"another version of Leafbus": func(c *jetstream.StreamConfig) { c.Description = "Leafbus: the tags and their max_id" },
	}
	for _, bucket := range buckets {
		changes := maps.Clone(every)
		if bucket == wire.BucketTags {
			maps.Copy(changes, ofTags)
		}
		changes[""] = func(*jetstream.StreamConfig) {}
		for what, change := range changes {
			c := streamFor(bucket)
			c.FirstSeq = 1000
			change(&c)
			err := Fit(bucket, c)
			if (err != nil) != (what != "") || err != nil && (!errors.Is(err, allocator.ErrRefused) ||
				!strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), bucket)) {
				t.Errorf("%s with %q: %v", bucket, what, err)
			}
		}
	}
	cfg := newConfig(t, natskit.Start(t))
	for bucket, open := range map[string]func() error{
		wire.BucketInstallation: func() error { _, _, err := ReadInstallation(t.Context(), cfg); return err },
		wire.BucketWorkers:      func() error { _, err := NewWorkers(cfg).List(t.Context()); return err },
		wire.BucketTags:         func() error { return NewRecords(cfg).Open(t.Context(), Installation{ID: "ours"}) },
		wire.BucketKeys:         func() error { _, err := NewKeys(cfg).read(t.Context()); return err },
	} {
		c := streamFor(bucket)
		c.FirstSeq, c.MaxAge = 1000, time.Hour
		_, err := cfg.JS.CreateStream(t.Context(), c)
		kit.Must(t, err)
		if err := open(); !errors.Is(err, allocator.ErrRefused) ||
			bucket == wire.BucketWorkers && !errors.Is(err, snowflake.ErrRefused) {
			t.Errorf("%s: %v; want it refused", bucket, err)
		}
		kit.Must(t, cfg.JS.DeleteStream(t.Context(), c.Name))
	}
}

// A NATS without JetStream may be one whose JetStream is away for a moment.
func TestNoJetStream(t *testing.T) {
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	nc, err := nats.Connect(ns.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{JS: js, Log: testkit.Quiet}
	if _, _, err := ReadInstallation(t.Context(), cfg); !errors.Is(err, ErrNoJetStream) ||
		errors.Is(err, allocator.ErrRefused) {
		t.Errorf("ReadInstallation: %v; want ErrNoJetStream, which may pass", err)
	}
}

// What is stored is asked of the leader of the bucket. Any replica answers a direct read, also one that lags behind.
func TestReadsAskTheLeader(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	r := openRecordsOf(t, newConfig(t, s))
	mustCreateOpaque(t, r, opaqueTag(t, "coupon", "53"))
	w := NewWorkers(r.cfg)
	if _, err := w.Add(t.Context(), holder(7), only(7)); err != nil {
		t.Fatal(err)
	}
	asked := make(chan *nats.Msg, 100)
	sub, err := r.cfg.JS.Conn().ChanSubscribe("$JS.API.DIRECT.>", asked)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Load(t.Context(), "coupon"); err != nil {
		t.Error(err)
	}
	if got, err := w.List(t.Context()); err != nil || len(got) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = NewKeys(r.cfg).read(t.Context())
	mustBackUp(t, r.cfg)
	if err := errors.Join(err, r.cfg.JS.Conn().Flush(), sub.Unsubscribe()); err != nil {
		t.Fatal(err)
	}
	for len(asked) > 0 {
		t.Errorf("%s: a replica may answer that", (<-asked).Subject)
	}
}
