package kvstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
)

// newConfig returns a connection of its own to the server.
func newConfig(tb testing.TB, s *embedded.Server) Config {
	nc := natskit.Connect(tb, s)
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatalf("JetStream: %v", err)
	}
	return Config{Conn: nc, JS: js, Log: testkit.Quiet}
}

func newStore(tb testing.TB, s *embedded.Server) *Store {
	store := New(newConfig(tb, s))
	if err := store.Open(tb.Context()); err != nil {
		tb.Fatalf("Open: %v", err)
	}
	return store
}

func TestConformance(t *testing.T) {
	t.Parallel()
	allocatortest.Run(t, func(tb testing.TB) allocatortest.Backend {
		s := natskit.Start(tb)
		return allocatortest.Backend{
			Open: func(tb testing.TB) allocator.Store { return newStore(tb, s) },
			Save: func(tb testing.TB) func() { return saveBucket(tb, newConfig(tb, s), bus.BucketTags) },

			Strict: true,
		}
	})
}

// saveBucket keeps a copy of a bucket; the returned function makes the bucket anew
// from it.
func saveBucket(tb testing.TB, cfg Config, bucket string) (restore func()) {
	ctx := context.Background()
	kv, err := cfg.JS.KeyValue(ctx, bucket)
	if err != nil {
		tb.Fatalf("saving: %v", err)
	}
	keys, err := kv.Keys(ctx)
	if err != nil {
		tb.Fatalf("saving: %v", err)
	}
	saved := make(map[string][]byte)
	for _, key := range keys {
		entry, err := kv.Get(ctx, key)
		if err != nil {
			tb.Fatalf("saving: %v", err)
		}
		saved[key] = entry.Value()
	}
	return func() {
		if err := cfg.JS.DeleteKeyValue(ctx, bucket); err != nil && !errors.Is(err, jetstream.ErrBucketNotFound) {
			tb.Fatalf("restoring: %v", err)
		}
		kv, err := openBucket(ctx, cfg, bucket, "", smallBytes)
		for removing(err) {
			kv, err = openBucket(ctx, cfg, bucket, "", smallBytes)
		}
		if err != nil {
			tb.Fatalf("restoring: %v", err)
		}
		for key, value := range saved {
			if _, err := kv.Put(ctx, key, value); err != nil {
				tb.Fatalf("restoring: %v", err)
			}
		}
	}
}

// removing reports whether a bucket cannot be made because the server still
// removes the folder of the one before: on a slow disk that was seen.
func removing(err error) bool {
	const codeStoreFailed jetstream.ErrorCode = 10049
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.ErrorCode == codeStoreFailed
}

func TestBucketRefused(t *testing.T) {
	t.Parallel()
	for bucket, open := range map[string]func(context.Context, Config) error{
		bus.BucketTags:    func(ctx context.Context, cfg Config) error { return New(cfg).Open(ctx) },
		bus.BucketLedger:  func(ctx context.Context, cfg Config) error { _, err := OpenLedger(ctx, cfg); return err },
		bus.BucketWorkers: func(ctx context.Context, cfg Config) error { _, err := NewWorkers(cfg).List(ctx); return err },
	} {
		for name, c := range map[string]jetstream.StreamConfig{
			"an age limit":             {MaxAge: time.Hour},
			"per-key TTLs":             {AllowMsgTTL: true},
			"asynchronous persistence": {PersistMode: jetstream.AsyncPersistMode},
			"memory storage":           {Storage: jetstream.MemoryStorage},
			"a size limit":             {Discard: jetstream.DiscardOld, MaxMsgs: 10},
		} {
			t.Run(bucket+" with "+name, func(t *testing.T) {
				cfg := newConfig(t, natskit.Start(t))
				c.Name, c.Subjects = "KV_"+bucket, []string{"$KV." + bucket + ".>"}
				c.MaxMsgsPerSubject, c.AllowRollup, c.DenyDelete = 1, true, true
				if c.MaxMsgs == 0 {
					c.Discard = jetstream.DiscardNew
				}
				if _, err := cfg.JS.CreateStream(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				err := open(t.Context(), cfg)
				if !errors.Is(err, allocator.ErrRefused) || !strings.Contains(err.Error(), name) {
					t.Errorf("%v; want it refused for %s", err, name)
				}
				if bucket == bus.BucketWorkers && !errors.Is(err, snowflake.ErrRefused) {
					t.Errorf("%v; want %v", err, snowflake.ErrRefused)
				}
			})
		}
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
	cfg := Config{Conn: nc, JS: js, Log: testkit.Quiet}
	if _, _, err := ReadInstallation(t.Context(), cfg); !errors.Is(err, ErrNoJetStream) || errors.Is(err, allocator.ErrRefused) {
		t.Errorf("ReadInstallation: %v; want ErrNoJetStream, which may pass", err)
	}
}
