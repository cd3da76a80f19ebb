package bus

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// hedged makes a client ask again as it does by default.
func hedged(c *Client) { c.hedging.off, c.attempt = false, mostAttempt }

// step is a call whose time is that of the test: nothing of it happens by itself.
func step(t *testing.T, u underTest, deadline time.Duration) (*pending, time.Time) {
	t.Helper()
	now := time.Now()
	p := &pending{
		request: request{subject: "leaf.segment.order", count: 1, body: []byte("1"), lateness: u.hedging.lateness("leaf.segment.order", 1)},
		c:       u.Client, answers: make(chan arrival, mostAnswers), timer: time.NewTimer(time.Hour),
		deadline: now.Add(deadline), pause: firstRetryPause,
	}
	p.lateness.delay.Store(int64(leastHedgeDelay))
	if err := p.attempt(now); err != nil {
		t.Fatal(err)
	}
	return p, now
}

// run does what is due until then.
func (p *pending) run(t *testing.T, until time.Time) {
	t.Helper()
	for {
		next, do := p.tickAt, func(now time.Time) error { return p.tick(t.Context(), now) }
		if !p.attemptAt.After(next) {
			next, do = p.attemptAt, p.attempt
		}
		if next.After(until) {
			return
		}
		if err := do(next); err != nil {
			t.Fatal(err)
		}
	}
}

// A request that nobody answers is sent again after 10 ms, and then every 10 ms, 8 times. The next attempt begins after a fifth of the time.
func TestHedges(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t, hedged)
	p, begin := step(t, u, time.Second)
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	for _, c := range []struct{ ms, sent int }{{9, 1}, {10, 2}, {19, 2}, {20, 3}, {79, 8}, {80, 9}, {199, 9}, {200, 10}} {
		if p.run(t, at(c.ms)); len(p.sent) != c.sent {
			t.Errorf("after %d ms %d requests were sent, want %d", c.ms, len(p.sent), c.sent)
		}
	}
	for range len(p.sent) {
		u.request(1)
	}
	if s := u.Stats(); s != (Stats{Requests: 1, Hedges: 8, Retries: 1}) {
		t.Errorf("%+v", s)
	}
}

// The answer to any request of a call counts, also to one of an earlier attempt.
func TestFirstAnswerCounts(t *testing.T) {
	t.Parallel()
	for late := range 3 {
		u := newUnderTest(t, hedged, NoHedging(), Timeout(time.Minute))
		u.attempt = 5 * time.Millisecond
		got := make(chan []Range)
		go func() {
			ranges, err := u.Take(t.Context(), "order", 1)
			if err != nil {
				t.Error(err)
			}
			got <- ranges
		}()
		var asked []*nats.Msg
		for range 3 {
			asked = append(asked, u.request(1))
		}
		respond(t, asked[late], strconv.Itoa(late+1))
		if ranges := <-got; len(ranges) != 1 || ranges[0].First != int64(late+1) {
			t.Errorf("answer %d: %v", late, ranges)
		}
	}
}

// The callers of Next that come while an answer is late have a request of their own.
func TestNextDoesNotWaitForALostAnswer(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t, hedged, Timeout(time.Hour))
	u.hedging.credit.Store(-1 << 40) // the lost one is not asked for again
	lost := u.next(far(t), "order", 1)
	held := u.request(1)
	for i := range 3 {
		others := u.next(far(t), "order", 5)
		served := int64(0)
		for served < 5 { // they may come one by one
			msg := <-u.requests
			n, _ := strconv.ParseInt(string(msg.Data), 10, 64)
			first := int64(100*i+10) + served
			respond(t, msg, Range{First: first, Last: first + n - 1}.String())
			served += n
		}
		u.get(others, 5)
	}
	respond(t, held, "1")
	if ids := u.get(lost, 1); ids[0] != 1 {
		t.Errorf("%v", ids)
	}
	u.over()
}

// While generators answer, hedges are at most one in a hundred requests, be the answers ever so late.
func TestHedgesHaveABudget(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t, hedged)
	var slow, answered atomic.Int64
	serve(t, u, func(msg *nats.Msg) {
		if answered.Add(1)%20 == 0 { // each twentieth answer is late
			slow.Add(1)
			time.AfterFunc(30*time.Millisecond, func() { msg.Respond([]byte("1")) })
			return
		}
		msg.Respond([]byte("1"))
	})
	const callers, calls = 8, 400
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range calls {
				if _, err := u.Take(t.Context(), "order", 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	s := u.Stats()
	// Each caller may send one request again before the answer that pays for it.
	if s.Requests != callers*calls || s.Hedges == 0 || s.Hedges > s.Requests/100+callers*mostHedges {
		t.Errorf("%+v, and %d answers were late", s, slow.Load())
	}
	t.Logf("%+v, %d answers were late", s, slow.Load())
}

// Calls that wait when the connection is closed end at once.
func TestCloseEndsCalls(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	ended := make(chan error)
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := u.Take(ctx, "order", 1); return err },
		func(ctx context.Context) error { _, err := u.DeleteTag(ctx, "order"); return err },
	} {
		go func() { ended <- call(far(t)) }()
		<-u.requests
	}
	u.nc.Close()
	for range 2 {
		if err := <-ended; !errors.Is(err, nats.ErrConnectionClosed) {
			t.Errorf("%v", err)
		}
	}
}

// A change whose answer was lost with the connection ends soon, though the client is connected again.
func TestChangeEndsWithTheConnection(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	ended := make(chan error)
	go func() { _, err := u.DeleteTag(far(t), "order"); ended <- err }()
	<-u.requests
	if err := u.nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, nats.ErrDisconnected) && !errors.Is(err, nats.ErrConnectionReconnecting) {
			t.Errorf("%v", err)
		}
	case <-time.After(testkit.Patience):
		t.Error("it waits on")
	}
}

// A handler that works while its connection drains gets its IDs, whether it asked before or asks now.
func TestIDsWhileDraining(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	begun, drains, got := make(chan bool), make(chan bool), make(chan error, 2)
	if _, err := u.nc.Subscribe("shop", func(*nats.Msg) {
		var before sync.WaitGroup
		before.Go(func() { _, err := u.Take(far(t), "order", 1); got <- err })
		begun <- true
		<-drains
		_, err := u.Take(far(t), "order", 2)
		got <- err
		before.Wait()
	}); err != nil {
		t.Fatal(err)
	}
	if err := u.nc.Publish("shop", nil); err != nil {
		t.Fatal(err)
	}
	<-begun
	u.request(1) // its answer comes too late
	if err := u.nc.Drain(); err != nil {
		t.Fatal(err)
	}
	respond(t, u.request(1), "1")
	drains <- true
	respond(t, u.request(2), "2-3")
	for range 2 {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
}

// A client that nobody uses any more leaves nothing on its connection.
func TestClientIsCollected(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	generator, nc := natskit.Connect(t, s), natskit.Connect(t, s)
	if _, err := generator.Subscribe("leaf.segment.order", func(msg *nats.Msg) { msg.Respond([]byte("1")) }); err != nil {
		t.Fatal(err)
	}
	if err := generator.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if _, err := NewClient(nc).Take(testkit.Context(t), "order", 1); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, "only that of nats.go", func() bool { runtime.GC(); return nc.NumSubscriptions() == 1 })
}
