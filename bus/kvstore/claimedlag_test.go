package kvstore

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
)

// How far a tag is claimed is asked of the leader of the bucket, and so is what is stored: it must not seem to be behind its own
// claims. Any replica answers a direct read, also one that lags behind.
func TestClaimedAsksTheLeader(t *testing.T) {
	t.Parallel()
	cfg := newConfig(t, natskit.Start(t))
	s := New(cfg)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), allocator.Tag{Name: "order", MaxID: 1, Step: 10}); err != nil {
		t.Fatal(err)
	}
	asked := make(chan *nats.Msg, 100)
	sub, err := cfg.Conn.ChanSubscribe("$JS.API.>", asked)
	if err == nil {
		err = cfg.Conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	if e, err := s.Claimed(t.Context(), "order"); err != nil || e.End != 1 {
		t.Errorf("%+v, %v", e, err)
	}
	if stored, err := s.Stored(t.Context(), "order", 1); err != nil || stored.MaxID != 1 {
		t.Errorf("%+v, %v", stored, err)
	}
	if _, err := cfg.JS.Stream(t.Context(), streamOf(bus.BucketTags)); err != nil { // comes after
		t.Fatal(err)
	}
	if err := cfg.Conn.Flush(); err != nil {
		t.Fatal(err)
	}
	_ = sub.Unsubscribe()
	for len(asked) > 0 {
		if m := <-asked; strings.Contains(m.Subject, ".DIRECT.") {
			t.Errorf("%s: a replica may answer that", m.Subject)
		}
	}
	stream, err := cfg.JS.Stream(t.Context(), streamOf(bus.BucketTags))
	if err != nil || !stream.CachedInfo().Config.AllowDirect {
		t.Errorf("the stream was changed: %v", err)
	}
}
