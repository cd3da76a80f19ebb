package audit

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// manyEvents is more than are under way at a time.
const manyEvents = readAhead + 2000

// Whatever happens to the stream, the server or the caller, a reading ends. Events that were not read make it an error that says why.
func TestReadingEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		disturb func(t *testing.T, s *embedded.Server, stream jetstream.Stream, js jetstream.JetStream, cancel func())
		err     error  // that is matched
		text    string // or text
	}{
		"the context ends": {func(_ *testing.T, _ *embedded.Server, _ jetstream.Stream, _ jetstream.JetStream, cancel func()) {
			cancel()
		}, context.Canceled, ""},
		"the stream is purged": {func(t *testing.T, _ *embedded.Server, s jetstream.Stream, _ jetstream.JetStream, _ func()) {
			if err := s.Purge(t.Context()); err != nil {
				t.Error(err)
			}
		}, errStalled, ""},
		"the stream is deleted": {func(t *testing.T, _ *embedded.Server, _ jetstream.Stream, js jetstream.JetStream, _ func()) {
			if err := js.DeleteStream(t.Context(), bus.EventStream); err != nil {
				t.Error(err)
			}
		}, nil, "LEAF_EVENTS"},
		"the stream is made again": {func(t *testing.T, _ *embedded.Server, _ jetstream.Stream, js jetstream.JetStream, _ func()) {
			err := js.DeleteStream(t.Context(), bus.EventStream)
			if err == nil {
				_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: bus.EventStream, Subjects: []string{bus.EventSubjects}})
			}
			if err != nil {
				t.Error(err)
			}
		}, nil, "LEAF_EVENTS"},
		"the server ends": {func(_ *testing.T, s *embedded.Server, _ jetstream.Stream, _ jetstream.JetStream, _ func()) { s.Close() }, nil, "LEAF_EVENTS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natskit.Start(t)
			js, stream := filledStream(t, s, manyEvents)
			ctx, cancel := context.WithCancel(testkit.Context(t))
			read := 0
			err := Read(ctx, js, allEvents, jetstream.DeliverAllPolicy, func(jetstream.Msg, uint64) {
				if read++; read == 1 {
					c.disturb(t, s, stream, js, cancel)
				}
			})
			if err == nil || c.err != nil && !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.text) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%d events were read, and then: %v", read, err)
			}
			t.Log(read, err)
		})
	}
}

// filledStream is a stream with so many messages.
func filledStream(t *testing.T, s *embedded.Server, count int) (jetstream.JetStream, jetstream.Stream) {
	t.Helper()
	nc := natskit.Connect(t, s)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: bus.EventStream, Subjects: []string{bus.EventSubjects}})
	if err != nil {
		t.Fatal(err)
	}
	for range count {
		if err := nc.Publish("leaf.events.info.segment.refill.order", []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, "all messages", func() bool {
		info, err := stream.Info(t.Context())
		return err == nil && info.State.Msgs == uint64(count)
	})
	return js, stream
}

// A connection that breaks while it reads goes on where it was.
func TestReadingSurvivesAReconnect(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	_, stream := filledStream(t, s, manyEvents)
	nc := natskit.Connect(t, s, nats.ReconnectWait(1), nats.MaxReconnects(-1))
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	next := uint64(1)
	err = Read(testkit.Context(t), js, allEvents, jetstream.DeliverAllPolicy, func(msg jetstream.Msg, _ uint64) {
		about, err := msg.Metadata()
		if err != nil || about.Sequence.Stream != next {
			t.Errorf("message %+v, %v, want %d", about, err, next)
		}
		if next++; next%2000 == 0 {
			if err := nc.ForceReconnect(); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil || next != manyEvents+1 {
		t.Errorf("%d of %d were read: %v", next-1, manyEvents, err)
	}
	testkit.Eventually(t, "no consumer to be left", func() bool {
		info, err := stream.Info(t.Context())
		return err == nil && info.State.Consumers == 0
	})
}

// The time that the caller takes for an event is no silence of the stream: the reading goes on after it.
func TestReadingWaitsForItsCaller(t *testing.T) {
	t.Parallel()
	js, _ := filledStream(t, natskit.Start(t), manyEvents)
	read := 0
	err := Read(testkit.Context(t), js, allEvents, jetstream.DeliverAllPolicy, func(jetstream.Msg, uint64) {
		if read++; read == 1 {
			<-time.After(readStall + time.Second)
		}
	})
	if err != nil || read != manyEvents {
		t.Errorf("%d of %d were read: %v", read, manyEvents, err)
	}
}

// A stream that evicts old events, and gets new ones, while it is read: the reading has what is left of what there was, and ends.
func TestReadingWhileTheStreamEvicts(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	js, stream := filledStream(t, s, manyEvents)
	cfg := stream.CachedInfo().Config
	cfg.MaxMsgs, cfg.Discard = manyEvents, jetstream.DiscardOld
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	last, read := uint64(0), 0
	err := Read(testkit.Context(t), js, allEvents, jetstream.DeliverAllPolicy, func(msg jetstream.Msg, _ uint64) {
		about, err := msg.Metadata()
		if err != nil || about.Sequence.Stream <= last || about.Sequence.Stream > manyEvents {
			t.Errorf("message %+v after %d, %v", about, last, err)
			return
		}
		last, read = about.Sequence.Stream, read+1
		if read > 1 {
			return
		}
		for range manyEvents - 500 {
			if err := js.Conn().Publish("leaf.events.info.segment.refill.order", []byte("{}")); err != nil {
				t.Error(err)
			}
		}
		testkit.Eventually(t, "the stream to evict", func() bool {
			info, err := stream.Info(t.Context())
			return err == nil && info.State.FirstSeq == manyEvents-500+1
		})
	})
	if err != nil || read == 0 || read == manyEvents || last <= readAhead {
		t.Errorf("%d were read, up to %d: %v", read, last, err)
	}
	t.Logf("%d of %d were read", read, manyEvents)
}

// Without a stream, without events and without such events there is nothing to read. Without JetStream that is an error.
func TestNothingToRead(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	js, err := jetstream.New(natskit.Connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	none := func() {
		t.Helper()
		err := Read(testkit.Context(t), js, refillEvents+"nosuch", jetstream.DeliverAllPolicy, func(jetstream.Msg, uint64) { t.Error("a message") })
		if err != nil {
			t.Error(err)
		}
	}
	none()
	filledStream(t, s, 10)
	none()
	s.Close()
	if err := Read(testkit.Context(t), js, allEvents, jetstream.DeliverAllPolicy, func(jetstream.Msg, uint64) {}); err == nil || !strings.Contains(err.Error(), "try again") {
		t.Errorf("a reading without a server: %v", err)
	}
}
