package stream

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// manyEvents is more than are under way at a time.
const manyEvents = readAhead + 2000

// filled is an event stream with many messages.
type filled struct {
	s      *embedded.Server
	js     jetstream.JetStream
	stream jetstream.Stream
}

func newFilled(t *testing.T) *filled {
	t.Helper()
	f := &filled{s: natskit.Start(t)}
	nc := natskit.Connect(t, f.s)
	var err error
	if f.js, err = jetstream.New(nc); err == nil {
		err = f.make(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	f.publish(t, manyEvents)
	testkit.Eventually(t, "all messages", func() bool {
		info, err := f.stream.Info(t.Context())
		return err == nil && info.State.Msgs == manyEvents
	})
	return f
}

func (f *filled) make(ctx context.Context) (err error) {
	f.stream, err = f.js.CreateStream(ctx, jetstream.StreamConfig{Name: events.Stream, Subjects: []string{events.Subjects}})
	return err
}

func (f *filled) publish(t *testing.T, count int) {
	t.Helper()
	for range count {
		if err := f.js.Conn().Publish("leaf.events.info.segment.refill.order", []byte("{}")); err != nil {
			t.Error(err)
		}
	}
}

// readAll reads all events, and calls f at the first one.
func readAll(ctx context.Context, js jetstream.JetStream, first func()) (n int, err error) {
	err = Read(ctx, js, events.Stream, events.Subjects, jetstream.DeliverAllPolicy, func(jetstream.Msg, uint64, uint64) {
		if n++; n == 1 {
			first()
		}
	})
	return n, err
}

// Whatever happens to the stream, the server or the caller, a reading ends. Events that were not read make it an error
// that says why.
func TestReadingEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		disturb func(ctx context.Context, f *filled, cancel func()) error
		err     error  // that is matched
		text    string // or text
	}{
		"the context ends":     {func(_ context.Context, _ *filled, cancel func()) error { cancel(); return nil }, context.Canceled, ""},
		"the stream is purged": {func(ctx context.Context, f *filled, _ func()) error { return f.stream.Purge(ctx) }, errStalled, ""},
		"the stream is made again": {func(ctx context.Context, f *filled, _ func()) error {
			return errors.Join(f.js.DeleteStream(ctx, events.Stream), f.make(ctx))
		}, nil, "LEAF_EVENTS"},
		"the server ends": {func(_ context.Context, f *filled, _ func()) error { f.s.Close(); return nil }, nil, "LEAF_EVENTS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFilled(t)
			ctx, cancel := context.WithCancel(testkit.Context(t))
			n, err := readAll(ctx, f.js, func() {
				if err := c.disturb(t.Context(), f, cancel); err != nil {
					t.Error(err)
				}
			})
			if err == nil || c.err != nil && !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.text) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%d events were read, and then: %v", n, err)
			}
		})
	}
}

// Without a stream and without such events there is nothing to read. Without JetStream that is an error.
func TestNothingToRead(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	js, err := jetstream.New(natskit.Connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	f := &filled{js: js}
	for range 2 {
		err := Read(testkit.Context(t), js, events.Stream, "leaf.events.info.segment.refill.nosuch", jetstream.DeliverAllPolicy,
			func(jetstream.Msg, uint64, uint64) { t.Error("a message") })
		if err = errors.Join(err, f.make(t.Context())); err != nil {
			t.Error(err)
		}
		f.publish(t, 10)
	}
	s.Close()
	if _, err := readAll(testkit.Context(t), js, func() {}); err == nil || !strings.Contains(err.Error(), "try again") {
		t.Errorf("a reading without a server: %v", err)
	}
}
