package generator

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

func event(severity string, n int) *nats.Msg {
	kind := "tag.updated"
	if severity == wire.Alert {
		kind = "segment.starved"
	}
	return newEvent(kind, "t", "n", map[string]int{"n": n})
}

// The queue is bounded, and its last quarter is for alerts.
func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	p := newPublisher(nil, nil, nil, nil)
	for i := range eventQueue + 100 {
		p.publish(event(wire.Info, i))
	}
	if queued, dropped := len(p.queue), p.dropped.Load(); queued != infoQueue || dropped != eventQueue+100-infoQueue {
		t.Errorf("%d queued, %d dropped; want %d and the rest", queued, dropped, infoQueue)
	}
	p.dropped.Store(0)
	for i := range eventQueue {
		p.publish(event(wire.Alert, i))
	}
	if queued, dropped := len(p.queue), p.dropped.Load(); queued != eventQueue || dropped != infoQueue {
		t.Errorf("with alerts %d queued, %d dropped; want %d and %d", queued, dropped, eventQueue, infoQueue)
	}
}

// Events wait while the stream is away, arrive in order, and those that are
// left at the end are handed over before run returns.
func TestEventsWait(t *testing.T) {
	t.Parallel()
	log := testkit.Quiet
	s := natskit.StartWith(t, embedded.Config{Log: log})
	nc := natskit.Connect(t, s)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}

	tries := 0
	p := newPublisher(js, func(ctx context.Context) error {
		if tries++; tries < 3 {
			return errors.New("away")
		}
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: bus.EventStream, Subjects: []string{bus.EventSubjects}, MaxMsgSize: 1000})
		return err
	}, func(context.Context, *nats.Msg) error { return nil }, log)
	// An operator's limit: this one must not hold up the others.
	p.publish(newEvent("tag.updated", "t", "n", map[string]string{"text": strings.Repeat("x", 1000)}))
	const events = 50
	for i := range events {
		p.publish(event(wire.Info, i))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); p.run(ctx) }()

	got := make(chan bus.Event, 2*events)
	follow, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	for follow.Err() == nil {
		if _, err := js.Stream(follow, bus.EventStream); err == nil {
			break
		}
	}
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		for e, err := range bus.NewClient(nc).Events(follow, bus.Since(time.Now().Add(-time.Hour))) {
			if err != nil {
				t.Error(err)
				continue
			}
			got <- e
		}
	}()
	expect := func(n int) {
		t.Helper()
		select {
		case e := <-got:
			if want := `{"n":` + strconv.Itoa(n) + `}`; string(e.Data) != want {
				t.Fatalf("got %s, want %s", e.Data, want)
			}
		case <-follow.Done():
			t.Fatalf("event %d did not come", n)
		}
	}
	for i := range events {
		expect(i)
	}
	cancel()
	for i := range events {
		p.publish(event(wire.Info, i)) // some of them after the end has begun
	}
	<-done
	for len(p.queue) > 0 {
		<-p.queue // published after run had ended
	}
	stop()
	<-followed
}

// A stop has little time: what others need most comes first, one event of each subject.
func TestFlushBeginsWithEachSubject(t *testing.T) {
	t.Parallel()
	var got []string
	p := newPublisher(nil, nil, func(_ context.Context, msg *nats.Msg) error {
		got = append(got, msg.Subject+string(msg.Data))
		return nats.ErrMaxPayload // taken for published, and no NATS is needed
	}, testkit.Quiet)
	for _, key := range []string{"a", "a", "a", "b", "a", "c", "b"} {
		p.publish(newEvent("tag.updated", key, "n", len(p.queue)))
	}
	p.opened = true
	p.flush()
	const subject = "leaf.events.info.tag.updated."
	want := []string{subject + "a0", subject + "b3", subject + "c5", subject + "a1", subject + "a2", subject + "a4", subject + "b6"}
	if !slices.Equal(got, want) {
		t.Errorf("published were %q, want %q", got, want)
	}
}

// A generator that stops in the moment in which it has started may find no stream yet.
func TestFlushMakesTheStream(t *testing.T) {
	t.Parallel()
	var calls []string
	p := newPublisher(nil, func(context.Context) error {
		calls = append(calls, "open")
		return nil
	}, func(context.Context, *nats.Msg) error {
		calls = append(calls, "publish")
		return nats.ErrMaxPayload // taken for published, and no NATS is needed
	}, testkit.Quiet)
	p.publish(event(wire.Info, 1))
	p.publish(event(wire.Info, 2))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.run(ctx)
	// Either may have come before the end was seen.
	if want := []string{"open", "publish", "publish"}; !slices.Equal(calls, want) {
		t.Errorf("%q, want %q", calls, want)
	}
}
