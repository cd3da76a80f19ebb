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

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/events"
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
	p := newPublisher(nil, nil, nil)
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
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: events.Stream, Subjects: []string{events.Subjects}, MaxMsgSize: 1000})
		return err
	}, log)
	// An operator's limit: this one must not hold up the others.
	p.publish(newEvent("tag.updated", "t", "n", map[string]string{"text": strings.Repeat("x", 1000)}))
	const most = 50
	for i := range most {
		p.publish(event(wire.Info, i))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); p.run(ctx) }()

	got := make(chan events.Event, 2*most)
	follow, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	for follow.Err() == nil {
		if _, err := js.Stream(follow, events.Stream); err == nil {
			break
		}
	}
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		for e, err := range events.Follow(follow, nc, events.Since(time.Now().Add(-time.Hour))) {
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
	for i := range most {
		expect(i)
	}
	cancel()
	for i := range most {
		p.publish(event(wire.Info, i)) // some of them after the end has begun
	}
	<-done
	for len(p.queue) > 0 {
		<-p.queue // published after run had ended
	}
	stop()
	<-followed
}

// taking is a JetStream that notes what is published, and fails if it is told to.
type taking struct {
	jetstream.JetStream
	calls []string
	fail  func() error
}

func (j *taking) PublishMsg(_ context.Context, msg *nats.Msg, _ ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if err := j.fail(); err != nil {
		return nil, err
	}
	j.calls = append(j.calls, string(msg.Data))
	return &jetstream.PubAck{}, nil
}

// A stop keeps the order of events, also that of the one whose publication it ends: else an old refill
// event could be the last one of its tag.
func TestFlushKeepsTheOrder(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	js := &taking{fail: func() error {
		if ctx.Err() == nil {
			cancel() // the stop comes while the first one is published
			return ctx.Err()
		}
		return nil
	}}
	p := newPublisher(js, func(context.Context) error { return nil }, testkit.Quiet)
	for n := range 5 {
		p.publish(event(wire.Info, n))
	}
	p.run(ctx)
	if want := []string{`{"n":0}`, `{"n":1}`, `{"n":2}`, `{"n":3}`, `{"n":4}`}; !slices.Equal(js.calls, want) {
		t.Errorf("published were %q, want %q", js.calls, want)
	}
}
