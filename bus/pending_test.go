package bus

import (
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

// A request that nobody answers is sent again, and the first answer counts, also that to an earlier request.
func TestFirstAnswerCounts(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]Option{"hedges": {hedged, Timeout(time.Hour)}, "attempts": {hedged, NoHedging(), Timeout(time.Minute)}} {
		for late := range 3 {
			u := newUnderTest(t, opts...)
			u.hedging.lateness("leaf.segment.order", 1).delay.Store(int64(leastHedgeDelay))
			if u.hedging.off {
				u.attempt = 5 * time.Millisecond
			}
			slow := u.next(t.Context(), "order", 1)
			asked := []*nats.Msg{u.request(1), u.request(1), u.request(1)}
			respond(t, asked[late], strconv.Itoa(late+1))
			if got := u.get(slow, 1); got[0] != int64(late+1) {
				t.Errorf("%s, answer %d: %d", name, late, got)
			}
		}
	}
}

// An answer that comes second, or when its call has ended, serves no other call. Each call is of another number of IDs.
func TestLateAnswersServeNobody(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t, hedged, NoHedging(), Timeout(time.Minute))
	u.attempt = time.Millisecond
	held := make(map[int]*nats.Msg) // the first request of a call
	answer := func(msg *nats.Msg) { respond(t, msg, "1-"+string(msg.Data)) }
	serve(t, u, func(msg *nats.Msg) {
		n, err := strconv.Atoi(string(msg.Data))
		if err != nil {
			t.Error(err)
		}
		if held[n] == nil {
			held[n] = msg
			if n%2 == 1 {
				answer(held[n-1]) // its call has ended
			}
			return
		}
		answer(msg)
		if n%2 == 1 {
			answer(held[n])
		}
	})
	for n := range int64(400) {
		if ranges, err := u.Take(t.Context(), "order", n+2); err != nil {
			t.Fatalf("%d IDs: %v, %v", n+2, ranges, err)
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
	for id := range int64(5) {
		other := u.next(far(t), "order", 1)
		respond(t, u.request(1), strconv.FormatInt(100+id, 10))
		if got := u.get(other, 1); got[0] != 100+id {
			t.Errorf("%d", got)
		}
	}
	respond(t, held, "1")
	if got := u.get(lost, 1); got[0] != 1 {
		t.Errorf("%d", got)
	}
	u.over()
}

// While generators answer, hedges are at most one in a hundred requests, be the answers ever so late.
func TestHedgesHaveABudget(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t, hedged)
	var answered atomic.Int64
	serve(t, u, func(msg *nats.Msg) {
		if answered.Add(1)%20 == 0 { // each twentieth answer is late
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
	// Each caller may send one request again before the answer that pays for it.
	if s := u.Stats(); s.Requests != callers*calls || s.Hedges == 0 || s.Hedges > s.Requests/100+callers*mostHedges {
		t.Errorf("%+v", s)
	}
}

// Calls that wait end at once when the connection is closed.
func TestCallsEndWithTheConnection(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	ended := make(chan error)
	go func() { _, err := u.Take(far(t), "order", 1); ended <- err }()
	<-u.requests
	u.nc.Close()
	if err := <-ended; !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("%v", err)
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
	nc := natskit.Connect(t, s)
	for range 10 {
		if _, err := NewClient(nc, Timeout(time.Millisecond)).Take(t.Context(), "order", 1); err == nil {
			t.Fatal("there is a generator")
		}
	}
	testkit.Eventually(t, "only that of nats.go", func() bool { runtime.GC(); return nc.NumSubscriptions() == 1 })
}
