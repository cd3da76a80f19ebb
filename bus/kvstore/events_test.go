package kvstore

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/tests/kit"
)

// The stream is created with the bounds that were given, and one subject gets an eighth of it. Then it stays as it is.
func TestEvents(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		maxBytes, wantBytes int64
		maxAge, wantAge     time.Duration
		wantPerSubject      int64
	}{
		{8 << 20, 8 << 20, 48 * time.Hour, 48 * time.Hour, 2048},
		{0, 256 << 20, 0, 720 * time.Hour, 65536},
	} {
		cfg := newConfig(t, natskit.Start(t))
		kit.Must(t, Events{Config: cfg, MaxBytes: c.maxBytes, MaxAge: c.maxAge}.Open(t.Context()))
		kit.Must(t, Events{Config: cfg, MaxBytes: 1 << 20, MaxAge: time.Hour}.Open(t.Context()))
		stream, err := cfg.JS.Stream(t.Context(), events.Stream)
		kit.Must(t, err)
		if got := stream.CachedInfo().Config; got.MaxBytes != c.wantBytes || got.MaxAge != c.wantAge ||
			got.MaxMsgsPerSubject != c.wantPerSubject || got.Discard != jetstream.DiscardOld {
			t.Errorf("the stream was created as %+v", got)
		}
	}
}
