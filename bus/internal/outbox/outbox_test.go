package outbox

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
)

func event(severity string, n int) *nats.Msg {
	kind := "tag.updated"
	if severity == wire.Alert {
		kind = "segment.starved"
	}
	return NewEvent(kind, "t", "n", map[string]int{"n": n})
}

// start runs an outbox until stop, which waits for its end.
func start(p *Outbox) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	return func() { cancel(); <-done }
}

// The queue is bounded, and its last quarter is for alerts.
func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	p := New(nil, nil, nil)
	for i := range eventQueue + 100 {
		p.Publish(event(wire.Info, i))
	}
	if queued, dropped := len(p.queue), p.dropped.Load(); queued != infoQueue || dropped != eventQueue+100-infoQueue {
		t.Errorf("%d queued, %d dropped; want %d and the rest", queued, dropped, infoQueue)
	}
	p.dropped.Store(0)
	for i := range eventQueue {
		p.Publish(event(wire.Alert, i))
	}
	if queued, dropped := len(p.queue), p.dropped.Load(); queued != eventQueue || dropped != infoQueue {
		t.Errorf("with alerts %d queued, %d dropped; want %d and %d", queued, dropped, eventQueue, infoQueue)
	}
}

// Events wait while the stream is away, and arrive in order. One that it will never accept does not hold up the others.
func TestEventsWait(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natskit.Connect(t, natskit.StartWith(t, embedded.Config{Log: testkit.Quiet})))
	if err != nil {
		t.Fatal(err)
	}
	tries, opened := 0, make(chan jetstream.Stream, 1)
	p := New(js, func(ctx context.Context) error {
		if tries++; tries < 3 {
			return errors.New("away")
		}
		s, err := js.CreateStream(ctx, jetstream.StreamConfig{
			Name: events.Stream, Subjects: []string{events.Subjects}, MaxMsgSize: 1000}) // an operator's limit
		select {
		case opened <- s:
		default: // not the first time
		}
		return err
	}, testkit.Quiet)
	p.Publish(NewEvent("tag.updated", "t", "n", map[string]string{"text": strings.Repeat("x", 1000)}))
	const most = 50
	for i := range most {
		p.Publish(event(wire.Info, i))
	}
	defer start(p)()
	stream := <-opened
	testkit.Eventually(t, "all are in the stream", func() bool {
		info, err := stream.Info(t.Context())
		return err == nil && info.State.Msgs == most
	})
	for i := range most {
		msg, err := stream.GetMsg(t.Context(), uint64(i+1))
		if want := `{"n":` + strconv.Itoa(i) + `}`; err != nil || string(msg.Data) != want {
			t.Errorf("got %s, %v; want %s", msg.Data, err, want)
		}
	}
	if dropped := p.Dropped(); dropped != 1 {
		t.Errorf("%d events were dropped, want the large one", dropped)
	}
}

// taking is a JetStream that notes what is published, and fails when a test says so.
type taking struct {
	jetstream.JetStream
	fail func(msg *nats.Msg) (stored bool, err error)

	mu    sync.Mutex
	calls []string // the data of each message that is in the stream
	known map[string]bool
}

func (j *taking) PublishMsg(_ context.Context, msg *nats.Msg, _ ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	stored, err := j.fail(msg)
	if id := msg.Header.Get(nats.MsgIdHdr); (stored || err == nil) && !j.known[id] {
		j.known[id] = true
		j.calls = append(j.calls, string(msg.Data))
	}
	return &jetstream.PubAck{}, err
}

// A stop keeps the order of events, also that of the one whose publication it ends: else an old refill
// event could be the last one of its tag.
func TestFlushKeepsTheOrder(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	again := 0
	js := &taking{known: make(map[string]bool), fail: func(*nats.Msg) (bool, error) {
		if ctx.Err() == nil {
			cancel() // the stop comes while the first one is published
			return false, ctx.Err()
		}
		if again++; again <= 2 {
			return false, errors.New("the stream works on the first attempt")
		}
		return true, nil
	}}
	p := New(js, func(context.Context) error { return nil }, testkit.Quiet)
	for n := range 5 {
		p.Publish(event(wire.Info, n))
	}
	p.Run(ctx)
	if want := []string{`{"n":0}`, `{"n":1}`, `{"n":2}`, `{"n":3}`, `{"n":4}`}; !slices.Equal(js.calls, want) {
		t.Errorf("published were %q, want %q", js.calls, want)
	}
}

// Attempts fail at random, some of them after the stream has the event. Each event is in the stream once, and those of
// a key in their order.
func TestRetriesKeepTheOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		random := allocatortest.Seed(t)
		left := 3000
		js := &taking{known: make(map[string]bool), fail: func(*nats.Msg) (bool, error) {
			if random.IntN(10) > 0 || left == 0 {
				return true, nil
			}
			left--
			return random.IntN(2) == 0, errors.New("away")
		}}
		p := New(js, func(context.Context) error { return nil }, testkit.Quiet)
		const keys, most = 400, 6000
		for n := range most {
			p.Publish(NewEvent("tag.updated", strconv.Itoa(random.IntN(keys)), "n", map[string]int{"n": n}))
		}
		of := make(map[string][]string)
		for range most {
			msg := <-p.queue
			key := msg.Header.Get(wire.HeaderSubject)
			of[key] = append(of[key], string(msg.Data))
			p.queue <- msg
		}
		stop := start(p)
		time.Sleep(24 * time.Hour)
		stop()
		at := make(map[string]int)
		for i, data := range js.calls {
			at[data] = i
		}
		if len(js.calls) != most || len(at) != most {
			t.Errorf("%d events are in the stream, %d different ones", len(js.calls), len(at))
		}
		for key, all := range of {
			if !slices.IsSortedFunc(all, func(a, b string) int { return at[a] - at[b] }) {
				t.Errorf("the events of key %s are out of order", key)
			}
		}
	})
}

// Many more events than the queue holds come at once, from a producer that waits for it: none is dropped.
func TestManyEvents(t *testing.T) {
	t.Parallel()
	js, err := jetstream.New(natskit.Connect(t, natskit.Start(t)))
	if err != nil {
		t.Fatal(err)
	}
	var stream jetstream.Stream
	p := New(js, func(ctx context.Context) (err error) {
		stream, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: events.Stream, Subjects: []string{events.Subjects}, Storage: jetstream.MemoryStorage})
		return err
	}, testkit.Quiet)
	stop := start(p)
	const most = 100_000
	for i := range most {
		p.Pace(t.Context())
		p.Publish(NewEvent("segment.refill", "tag"+strconv.Itoa(i), "n", struct{}{}))
	}
	testkit.Eventually(t, "all are under way", func() bool { return len(p.queue) == 0 })
	stop()
	info, err := stream.Info(t.Context())
	if err != nil || info.State.Msgs != most || p.dropped.Load() > 0 {
		t.Errorf("%d events are in the stream, %d were dropped, want %d and none: %v", info.State.Msgs, p.dropped.Load(), most, err)
	}
}

// While the stream is away, the producer does not wait for it.
func TestPaceWithoutStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(nil, func(context.Context) error { return errors.New("away") }, testkit.Quiet)
		for i := range infoQueue {
			p.Publish(event(wire.Info, i))
		}
		paced := make(chan struct{})
		go func() { p.Pace(t.Context()); close(paced) }()
		time.Sleep(time.Minute)
		select {
		case <-paced:
			t.Error("a full queue lets a producer go on")
		default:
		}
		stop := start(p)
		defer stop()
		select {
		case <-paced:
		case <-time.After(time.Minute):
			t.Error("the producer waits for a stream that is away")
		}
	})
}
