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
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
)

func TestBucketRefused(t *testing.T) {
	t.Parallel()
	for bucket, open := range map[string]func(context.Context, Config) error{
		wire.BucketInstallation: func(ctx context.Context, cfg Config) error {
			_, _, err := ReadInstallation(ctx, cfg)
			return err
		},
		wire.BucketWorkers: func(ctx context.Context, cfg Config) error {
			_, err := NewWorkers(cfg).List(ctx)
			return err
		},
	} {
		for name, c := range map[string]jetstream.StreamConfig{
			"an age limit":             {MaxAge: time.Hour},
			"per-key TTLs":             {AllowMsgTTL: true},
			"asynchronous persistence": {PersistMode: jetstream.AsyncPersistMode},
			"memory storage":           {Storage: jetstream.MemoryStorage},
			"another retention":        {Retention: jetstream.InterestPolicy},
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
				if bucket == wire.BucketWorkers && !errors.Is(err, snowflake.ErrRefused) {
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
	sub, err := r.cfg.Conn.ChanSubscribe("$JS.API.DIRECT.>", asked)
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
	if err := errors.Join(err, r.cfg.Conn.Flush(), sub.Unsubscribe()); err != nil {
		t.Fatal(err)
	}
	for len(asked) > 0 {
		t.Errorf("%s: a replica may answer that", (<-asked).Subject)
	}
}
