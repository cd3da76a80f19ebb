package bus

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// fakeLine is a connection to generators that exist only in virtual time.
type fakeLine struct {
	x     *exchange
	line  int
	began time.Time
	lost  atomic.Bool
	// answer is to the n-th request of the line, for so many IDs. nil: none comes
	answer func(n, ids int64) (reply *nats.Msg, after time.Duration)

	mu     sync.Mutex
	sent   []time.Duration // when requests came
	number int             // of the last one in its call
}

func (f *fakeLine) away() error {
	if f.lost.Load() {
		return nats.ErrConnectionReconnecting
	}
	return nil
}

func (f *fakeLine) lastError() error { return nil }
func (f *fakeLine) end()             {}

func (f *fakeLine) publish(_ string, body []byte, token uint64, number int) error {
	ids, err := strconv.ParseInt(string(body), 10, 64)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, time.Since(f.began))
	f.number = number
	if reply, after := f.answer(int64(len(f.sent)), ids); reply != nil {
		time.AfterFunc(after, func() { f.x.receive(f.line, token, number, reply) })
	}
	return nil
}

// times returns when requests came, in ms.
func (f *fakeLine) times() (ms []int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, at := range f.sent {
		ms = append(ms, at.Milliseconds())
	}
	return ms
}

// faked returns a client with a fake line for each function. Answers take about a millisecond up to now.
func faked(answers ...func(n, ids int64) (*nats.Msg, time.Duration)) (*Client, []*fakeLine) {
	c := newClient(nil)
	c.x.small.delay = leastDelay
	var lines []*fakeLine
	for _, f := range answers {
		l := &fakeLine{x: c.x, line: len(lines), began: time.Now(), answer: f}
		lines, c.x.lines = append(lines, l), append(c.x.lines, l)
	}
	c.x.small.tokens = mostTokens
	return c, lines
}

var (
	one       = &nats.Msg{Data: []byte("1")}
	nobody    = &nats.Msg{Header: nats.Header{"Status": {"503"}}}
	silentFor = func(_, _ int64) (*nats.Msg, time.Duration) { return nil, 0 }
	answersIn = func(d time.Duration) func(_, _ int64) (*nats.Msg, time.Duration) {
		return func(_, _ int64) (*nats.Msg, time.Duration) { return one, d }
	}
)

// takeWithin takes an ID, and returns how long that took.
func takeWithin(t *testing.T, c *Client, d time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	began := time.Now()
	_, err := c.Take(ctx, "order", 1)
	return time.Since(began), err
}

// A request without an answer goes out after each delay, 8 times, and after each fifth of the caller's time.
func TestWhenRequestsAreSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, lines := faked(silentFor)
		took, err := takeWithin(t, c, 500*time.Millisecond)
		want := []int64{0, 10, 20, 30, 40, 50, 60, 70, 80, 100, 200, 300, 400}
		if got := lines[0].times(); !slices.Equal(got, want) || took != 500*time.Millisecond || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("sent at %d ms, %v after %v; want %d", got, err, took, want)
		}
		if s := c.Stats(); s != (Stats{Requests: 1, Hedges: 8, Retries: 4}) {
			t.Errorf("%+v", s)
		}
		time.Sleep(2 * silence)
		if n := underLock(c, func(x *exchange) int { return len(x.open) }); n != 0 {
			t.Errorf("%d requests are waited for", n)
		}
	})
}

// If no generator is there, or it answers that it has too much to do, requests go out after growing pauses, and no
// other call sends hedges for a while.
func TestPausesAfterRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, lines := faked(func(_, _ int64) (*nats.Msg, time.Duration) { return nobody, time.Millisecond })
		if _, err := takeWithin(t, c, time.Second); !errors.Is(err, nats.ErrNoResponders) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		at := lines[0].times()
		for i, pause := range []int64{20, 40, 80, 160} {
			if got := at[i+1] - at[i] - 1; got < pause || got > pause*3/2 {
				t.Errorf("pause %d: %d ms", i, got)
			}
		}
		quiet := underLock(c, func(x *exchange) time.Time { return x.small.quiet })
		if c.Stats().Hedges != 0 || time.Until(quiet) < -time.Second/2 {
			t.Errorf("%+v, quiet until %v", c.Stats(), quiet)
		}
	})
}

// While generators answer within a second, hedges are one in a hundred requests, however late the answers are.
func TestHedgesHaveABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := faked(func(n, _ int64) (*nats.Msg, time.Duration) {
			if n%20 == 0 {
				return one, 300 * time.Millisecond
			}
			return one, time.Millisecond
		})
		const calls = 10_000
		for range calls {
			underLock(c, func(x *exchange) bool { x.small.delay = leastDelay; return true }) // which would follow the answers
			if _, err := takeWithin(t, c, 5*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		if s := c.Stats(); s.Requests != calls || s.Hedges == 0 || s.Hedges > calls/100+2*mostHedges {
			t.Errorf("%+v", s)
		}
	})
}

// A hedge costs a token if the first request is answered, too, within a second.
func TestWhatHedgesCost(t *testing.T) {
	for took, cost := range map[time.Duration]int{30 * time.Millisecond: 3, 900 * time.Millisecond: 3, 3 * time.Second: 0} {
		synctest.Test(t, func(t *testing.T) {
			c, _ := faked(func(n, _ int64) (*nats.Msg, time.Duration) {
				if n == 1 {
					return one, took
				}
				return one, 25 * time.Millisecond
			})
			if took, err := takeWithin(t, c, time.Second); err != nil || took > 35*time.Millisecond {
				t.Errorf("%v, %v", took, err)
			}
			time.Sleep(5 * time.Second)
			tokens := underLock(c, func(x *exchange) int { return x.small.tokens })
			if paid := mostTokens - tokens; paid != min(cost, int(c.Stats().Hedges))*tokensForHedge {
				t.Errorf("the first answer came after %v: %d hedges cost %d", took, c.Stats().Hedges, paid)
			}
		})
	}
}

// One of three generators is frozen for 10 s: its share of the requests stays without an answer, and then all are
// answered at once. No call fails, and few take long. A call sends 13 requests. The last one does not go to the frozen
// generator: in one of 150 runs all 13 would, and a call would fail.
func TestFrozenGenerator(t *testing.T) {
	random := allocatortest.Seed(t)
	synctest.Test(t, func(t *testing.T) {
		thaw := 10 * time.Second
		var c *Client
		var lines []*fakeLine
		c, lines = faked(func(_, _ int64) (*nats.Msg, time.Duration) {
			took := time.Duration(random.Int64N(int64(2*time.Millisecond))) + 200*time.Microsecond
			isLast := lines[0].number == 12
			if now := time.Since(lines[0].began); now < thaw && random.IntN(3) == 0 && !isLast {
				return one, thaw - now + took
			}
			return one, took
		})
		var late, failed atomic.Int64
		var all sync.WaitGroup
		for range 10_000 { // in 10 s
			all.Go(func() {
				took, err := takeWithin(t, c, 500*time.Millisecond)
				if err != nil {
					failed.Add(1)
				}
				if took > 150*time.Millisecond {
					late.Add(1)
				}
			})
			time.Sleep(time.Millisecond)
		}
		all.Wait()
		if failed.Load() > 0 || late.Load() > 5 {
			t.Errorf("of 10,000 calls %d failed, and %d took long; %+v", failed.Load(), late.Load(), c.Stats())
		}
	})
}

// A NATS server is frozen: a hedge goes over the other connection, and so do all requests after it, although the server
// of that one loses every second request. A request in a second looks whether the frozen server is back.
func TestFrozenServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lossy := func(n, _ int64) (*nats.Msg, time.Duration) {
			if n%2 == 0 {
				return nil, 0
			}
			return one, time.Millisecond
		}
		c, lines := faked(silentFor, lossy)
		for i := range 200 {
			if took, err := takeWithin(t, c, 500*time.Millisecond); err != nil || took > 3*leastDelay+time.Millisecond {
				t.Errorf("call %d: %v, %v", i, took, err)
			}
		}
		if n, seconds := len(lines[0].times()), int(time.Since(lines[0].began)/time.Second); n > 1+2*seconds {
			t.Errorf("in %d s %d requests went over the silent connection", seconds, n)
		}
		// A connection that is known to be lost is not tried.
		lines[1].lost.Store(true)
		lines[0].answer = answersIn(2 * time.Millisecond)
		if took, err := takeWithin(t, c, 500*time.Millisecond); err != nil || took != 2*time.Millisecond {
			t.Errorf("the other one is lost: %v, %v", took, err)
		}
	})
}

// The delay follows the answers: it is where one in 1,000 is late. Calls that wait at the same time raise it once.
func TestDelay(t *testing.T) {
	b := &newExchange().small
	now := time.Now()
	for range 20_000 {
		b.observe(now, now.Add(time.Millisecond))
	}
	if b.delay != leastDelay {
		t.Errorf("%v after answers in 1 ms", b.delay)
	}
	for range 1000 {
		b.observe(now, now.Add(900*time.Millisecond))
	}
	if want := leastDelay * (delayUp + 1) / delayUp; b.delay != want {
		t.Errorf("%v after an outage, want %v", b.delay, want)
	}
	for i := range 1_000_000 {
		now = now.Add(time.Second)
		took := 2 * time.Millisecond
		if i%1000 < 2 {
			took = 50 * time.Millisecond
		}
		b.observe(now, now.Add(took))
	}
	if b.delay < 30*time.Millisecond || b.delay > 70*time.Millisecond {
		t.Errorf("%v if 2 in 1,000 take 50 ms", b.delay)
	}
}

// An answer that comes second, or when its call has ended, serves no other call. Each call is of another number of IDs.
func TestLateAnswersServeNobody(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t, hedged, Timeout(time.Minute))
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
		underLock(u.Client, func(x *exchange) bool { x.small.tokens, x.small.delay = mostTokens, time.Millisecond; return true })
		if ranges, err := u.Take(t.Context(), "order", n+2); err != nil {
			t.Fatalf("%d IDs: %v, %v", n+2, ranges, err)
		}
	}
}

// The callers of Next that come while an answer is late have a request of their own.
func TestNextDoesNotWaitForALostAnswer(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t, hedged, Timeout(time.Hour))
	u.x.small.tokens = -1 << 30 // the lost one is not asked for again
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

// A call that has no time left says why the one before it had no answer.
func TestCallWithoutTime(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t, hedged)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var failed atomic.Pointer[error]
	quota := error(&Error{Code: 429, Reason: QuotaExceeded})
	failed.Store(&quota)
	_, err := u.x.ask(ctx, 0, request{subject: "leaf.segment.order", count: 1, failed: &failed})
	if !errors.Is(err, QuotaExceeded) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
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
	testkit.Eventually(t, "no subscription is left", func() bool { runtime.GC(); return nc.NumSubscriptions() == 0 })
}

// hedged makes a client ask again as it does by default.
func hedged(c *Client) { c.x.hedging = true }

// underLock returns a part of what the lock of a client's exchange guards.
func underLock[T any](c *Client, f func(*exchange) T) T {
	c.x.mu.Lock()
	defer c.x.mu.Unlock()
	return f(c.x)
}

// A user can hang metrics on each call.
func TestOnCall(t *testing.T) {
	t.Parallel()
	seen := make(chan Call, 10)
	u := newUnderTest(t, OnCall(func(c Call) { seen <- c }))
	results := u.next(far(t), "order", 1)
	respond(t, u.request(1), "7")
	u.get(results, 1)
	if c := <-seen; c.Subject != "leaf.segment.order" || c.IDs != 1 || c.Took <= 0 || c.Err != nil {
		t.Errorf("%+v", c)
	}
	results = u.next(far(t), "coupon", 1)
	refuse(t, u.request(1), 404, UnknownTag)
	u.fails(results, 1, UnknownTag)
	if c := <-seen; c.Subject != "leaf.segment.coupon" || !errors.Is(c.Err, UnknownTag) {
		t.Errorf("%+v", c)
	}
}
