package generator

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
)

// startQueue runs a queue for the subject q until the test ends. It answers each request after handle.
func startQueue(t *testing.T, s *embedded.Server, handle func()) *queue {
	nc := natskit.Connect(t, s, nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond))
	q := newQueue(nc, testkit.Quiet, "q", micro.EndpointStats{Name: "q", Subject: "q"})
	q.overloaded = func() {}
	q.reconnect = func() { _ = nc.ForceReconnect() }
	q.handle = func(msg *nats.Msg) *bus.Error {
		handle()
		_ = nc.Publish(msg.Reply, nil)
		return nil
	}
	t.Cleanup(background(q.run).stop)
	return q
}

func (q *queue) enter(t *testing.T) {
	t.Helper()
	q.do(func() {
		if err := q.join(); err != nil {
			t.Error(err)
		}
	})
}

// If the connection is lost while a queue leaves its group or enters it, NATS has it as a member exactly if it takes
// part. A member that nobody reads would let each request time out.
func TestQueueLeavesWhileTheConnectionIsLost(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	q := startQueue(t, s, func() {})
	nc := natskit.Connect(t, s)
	forced := make(chan struct{})
	reconnects := background(func(ctx context.Context) {
		for ctx.Err() == nil {
			select {
			case <-forced:
				_ = q.conn.ForceReconnect()
			case <-ctx.Done():
			}
		}
	})
	defer reconnects.stop()
	ends := func(what string, want error) {
		t.Helper()
		last := error(nil)
		testkit.Eventually(t, what, func() bool {
			_, last = nc.Request("q", nil, 100*time.Millisecond)
			return errors.Is(last, want)
		})
		for range 3 {
			if _, err := nc.Request("q", nil, testkit.Patience); !errors.Is(err, want) {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	for range 60 {
		q.enter(t)
		ends("it answers", nil)
		forced <- struct{}{}
		q.do(q.leave)
		testkit.Eventually(t, "it has left", func() bool { return q.left() && q.conn.IsConnected() })
		ends("nobody answers", nats.ErrNoResponders)
	}
}

// A queue that leaves its group answers all that NATS has passed on, and NATS refuses the rest.
func TestQueueAnswersBeforeItHasLeft(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	q := startQueue(t, s, func() {})
	nc := natskit.Connect(t, s)
	replies, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		q.enter(t)
		if err := q.conn.Flush(); err != nil {
			t.Fatal(err)
		}
		sent := 0
		requests := background(func(ctx context.Context) {
			for ctx.Err() == nil {
				for range 100 {
					sent++
					if err := nc.PublishRequest("q", replies.Subject, nil); err != nil {
						t.Error(err)
					}
				}
				if err := nc.Flush(); err != nil {
					t.Error(err)
				}
			}
		})
		next := func() {
			t.Helper()
			if _, err := replies.NextMsg(testkit.Patience); err != nil && !errors.Is(err, nats.ErrNoResponders) {
				t.Fatalf("a request has no answer: %v", err)
			}
		}
		const before = 1000
		for range before {
			next()
		}
		q.do(q.leave)
		testkit.Eventually(t, "it has left", q.left)
		requests.stop()
		for range sent - before {
			next()
		}
		if _, err := nc.Request("q", nil, testkit.Patience); !errors.Is(err, nats.ErrNoResponders) {
			t.Fatalf("a later request: %v", err)
		}
	}
}

// A queue that begins again answers nothing of what waited, and all that comes later.
func TestQueueBeginsAgain(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	var handled atomic.Int64
	q := startQueue(t, s, func() { handled.Add(1) })
	nc := natskit.Connect(t, s)
	q.enter(t)
	if err := q.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	q.do(func() { // meanwhile it reads no requests
		for range 100 {
			if err := nc.PublishRequest("q", "nobody", nil); err != nil {
				t.Error(err)
			}
		}
		testkit.Eventually(t, "the requests have come", func() bool { return len(q.requests) == 100 })
		if err := q.again(); err != nil {
			t.Error(err)
		}
	})
	if err := q.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Request("q", nil, testkit.Patience); err != nil || handled.Load() != 1 {
		t.Errorf("%v; %d requests were handled", err, handled.Load())
	}
}

// While a valve is shut, NATS still passes on what it took before. If that is too much, it is lost, because the answers
// would come late.
func TestQueueDropsWhatComesLate(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	q := startQueue(t, s, func() {})
	q.do(func() {
		sub, err := q.conn.ChanQueueSubscribe("q", wire.QueueGroup, q.requests)
		if err != nil {
			t.Error(err)
		}
		q.joined, q.valve = true, valve{shut: true, limit: 10, at: time.Now()}
		q.leaving = []*nats.Subscription{sub}
		for n := 1; n <= 21; n++ {
			q.requests <- &nats.Msg{Sub: sub}
			if q.look(time.Now()); sub.IsValid() != (n <= 20) {
				t.Errorf("%d requests wait, and it takes further ones: %v", n, sub.IsValid())
			}
		}
	})
}

// Of two queues the slow one shuts its valve, and NATS gives what it does not take to the other one, so that no request
// is refused. Then it is a member as before.
func TestQueuesShare(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	var slow, fast, overloads atomic.Int64
	var isSlow atomic.Bool
	isSlow.Store(true)
	x := startQueue(t, s, func() {
		slow.Add(1)
		if isSlow.Load() {
			time.Sleep(time.Millisecond)
		}
	})
	x.overloaded = func() { overloads.Add(1) }
	y := startQueue(t, s, func() { fast.Add(1) })
	x.enter(t)
	y.enter(t)
	for _, q := range []*queue{x, y} {
		if err := q.conn.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	nc := natskit.Connect(t, s)
	var refused, answered atomic.Int64
	inbox := nc.NewInbox()
	if _, err := nc.Subscribe(inbox, func(msg *nats.Msg) {
		if msg.Header.Get("Status") == "503" {
			refused.Add(1)
		} else {
			answered.Add(1)
		}
	}); err != nil {
		t.Fatal(err)
	}
	sent := int64(0)
	testkit.Eventually(t, "the valve has closed three times", func() bool {
		// As many as a valve lets wait, and no more than it drops. The fast one never waits.
		for range 20 {
			if len(x.requests) > 700 || len(y.requests) > 100 || overloads.Load() >= 3 {
				break
			}
			for range 50 {
				sent++
				if err := nc.PublishRequest("q", inbox, nil); err != nil {
					t.Fatal(err)
				}
			}
			for _, nc := range []*nats.Conn{nc, x.conn, y.conn} { // in this order, so that all are in the queues
				if err := nc.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		return overloads.Load() >= 3
	})
	isSlow.Store(false)
	testkit.Eventually(t, "the valve is open", func() (open bool) {
		x.do(func() { open = !x.valve.shut && len(x.requests) == 0 })
		return open
	})
	before := slow.Load()
	testkit.Eventually(t, "both answer", func() bool {
		_, err := nc.Request("q", nil, testkit.Patience)
		return err == nil && slow.Load() > before
	})
	if refused.Load() > 0 || fast.Load() < 2*before || answered.Load() < sent*9/10 {
		t.Errorf("of %d requests %d were refused, %d answered, %d by the slow one", sent, refused.Load(), answered.Load(), before)
	}
}
