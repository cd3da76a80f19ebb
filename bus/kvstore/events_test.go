package kvstore

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/natskit"
)

// The stream is created with the bounds that were given, and one subject gets an eighth of it.
func TestEventsCreated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		maxBytes, wantBytes int64
		maxAge, wantAge     time.Duration
		wantPerSubject      int64
	}{
		"given":    {8 << 20, 8 << 20, 48 * time.Hour, 48 * time.Hour, 2048},
		"defaults": {0, 256 << 20, 0, 720 * time.Hour, 65536},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			cfg := newConfig(t, natskit.Start(t))
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			events := Events{Config: cfg, MaxBytes: c.maxBytes, MaxAge: c.maxAge}
			for range 2 {
				if err := events.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			got := eventStream(t, cfg)
			if got.MaxBytes != c.wantBytes || got.MaxAge != c.wantAge || got.MaxMsgsPerSubject != c.wantPerSubject ||
				got.Discard != jetstream.DiscardOld {
				t.Errorf("the stream was created as %+v", got)
			}
			if log.Len() > 0 {
				t.Errorf("the log has %s", &log)
			}
		})
	}
}

// A stream that exists stays as it is. What it lacks is logged once, with the command that helps.
func TestEventsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		found jetstream.StreamConfig
		want  string // in the log; empty: nothing
	}{
		"as made before": {jetstream.StreamConfig{MaxBytes: 256 << 20},
			"nats stream edit LEAF_EVENTS --max-msgs-per-subject 65536"},
		"small": {jetstream.StreamConfig{MaxBytes: 100},
			"nats stream edit LEAF_EVENTS --max-msgs-per-subject 1\""},
		"without bounds":     {jetstream.StreamConfig{}, ""},
		"with its own bound": {jetstream.StreamConfig{MaxBytes: 256 << 20, MaxMsgsPerSubject: 1e9}, ""},
		"in part": {jetstream.StreamConfig{Subjects: []string{"leaf.events.alert.>"}},
			"does not keep all events"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			cfg := newConfig(t, natskit.Start(t))
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			c.found.Name = events.Stream
			if c.found.Subjects == nil {
				c.found.Subjects = []string{events.Subjects}
			}
			if _, err := cfg.JS.CreateStream(t.Context(), c.found); err != nil {
				t.Fatal(err)
			}
			before := eventStream(t, cfg)
			events := Events{Config: cfg, MaxBytes: 1 << 20, MaxAge: time.Hour}
			for range 2 {
				if err := events.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if now := eventStream(t, cfg); now.MaxBytes != before.MaxBytes || now.MaxAge != before.MaxAge ||
				now.MaxMsgsPerSubject != before.MaxMsgsPerSubject {
				t.Errorf("%+v became %+v", before, now)
			}
			if got := log.String(); strings.Count(got, "\n") != min(len(c.want), 1) || !strings.Contains(got, c.want) {
				t.Errorf("the log has %q, want one line with %q", got, c.want)
			}
		})
	}
}

// eventStream is how the event stream is configured.
func eventStream(t *testing.T, cfg Config) jetstream.StreamConfig {
	t.Helper()
	stream, err := cfg.JS.Stream(t.Context(), events.Stream)
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().Config
}
