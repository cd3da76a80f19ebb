package bus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus/embedded"
)

// nextPatience bounds the waits of these tests. It is no measure of speed.
const nextPatience = 20 * time.Second

// soon waits until ok.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(nextPatience); time.Now().Before(deadline); <-tick.C {
		if ok() {
			return
		}
	}
	t.Fatalf("it did not happen that %s", what)
}

// underTest is a client, and the requests that generators would get from it.
type underTest struct {
	*Client
	t        *testing.T
	requests chan *nats.Msg
}

func newUnderTest(t *testing.T, opts ...Option) underTest {
	t.Helper()
	s, err := embedded.Start(embedded.Config{Listen: "127.0.0.1:0", StoreDir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	var conns [2]*nats.Conn
	for i := range conns {
		if conns[i], err = nats.Connect(s.ClientURL()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conns[i].Close)
	}
	u := underTest{NewClient(conns[0], opts...), t, make(chan *nats.Msg, 1000)}
	u.first = time.Minute // what a test holds back is not asked for again
	if _, err := conns[1].ChanSubscribe("leaf.>", u.requests); err != nil {
		t.Fatal(err)
	}
	if err := conns[1].Flush(); err != nil {
		t.Fatal(err)
	}
	return u
}

// request returns the next request, which must be of n IDs.
func (u underTest) request(n int) *nats.Msg {
	u.t.Helper()
	select {
	case msg := <-u.requests:
		if string(msg.Data) != strconv.Itoa(n) {
			u.t.Fatalf("%s IDs are asked for, want %d", msg.Data, n)
		}
		return msg
	case <-time.After(nextPatience):
		u.t.Fatal("no request came")
	}
	return nil
}

// over checks that there was no other request, and that nothing is left of the callers.
func (u underTest) over() {
	u.t.Helper()
	soon(u.t, "nothing is left of the callers", func() bool {
		u.tagGroups.mu.Lock()
		defer u.tagGroups.mu.Unlock()
		u.flakeGroups.mu.Lock()
		defer u.flakeGroups.mu.Unlock()
		return len(u.tagGroups.of)+len(u.flakeGroups.of) == 0
	})
	select {
	case msg := <-u.requests:
		u.t.Errorf("one more request, of %s", msg.Data)
	default:
	}
}

// waiting waits until n callers wait for the next request of a tag.
func (u underTest) waiting(tag string, n int) {
	u.t.Helper()
	soon(u.t, fmt.Sprintf("%d callers wait", n), func() bool {
		u.tagGroups.mu.Lock()
		defer u.tagGroups.mu.Unlock()
		g := u.tagGroups.of[tag]
		return g != nil && (g.waiting == nil && n == 0 || g.waiting != nil && g.waiting.callers == n)
	})
}

// called is a call of Next.
type called struct {
	id  int64
	err error
}

// next calls Next n times at a time.
func (u underTest) next(ctx context.Context, tag string, n int) <-chan called {
	results := make(chan called, n)
	for range n {
		go func() {
			id, err := u.Next(ctx, tag)
			results <- called{id, err}
		}()
	}
	return results
}

// get waits for n calls and returns their IDs in order.
func (u underTest) get(results <-chan called, n int) []int64 {
	u.t.Helper()
	var ids []int64
	for range n {
		select {
		case r := <-results:
			if r.err != nil {
				u.t.Fatal(r.err)
			}
			ids = append(ids, r.id)
		case <-time.After(nextPatience):
			u.t.Fatalf("%d of %d got IDs", len(ids), n)
		}
	}
	slices.Sort(ids)
	return ids
}

// fails waits for n calls that must fail with all these errors.
func (u underTest) fails(results <-chan called, n int, want ...error) {
	u.t.Helper()
	for range n {
		select {
		case r := <-results:
			for _, want := range want {
				if !errors.Is(r.err, want) {
					u.t.Errorf("%d, %v; want %v", r.id, r.err, want)
				}
			}
		case <-time.After(nextPatience):
			u.t.Fatal("a caller waits on")
		}
	}
}

func respond(t *testing.T, msg *nats.Msg, answer string) {
	t.Helper()
	if err := msg.Respond([]byte(answer)); err != nil {
		t.Error(err)
	}
}

func refuse(t *testing.T, msg *nats.Msg, code int, reason Reason) {
	t.Helper()
	e := &Error{Code: code, Reason: reason, Message: "no", RetryAfter: time.Millisecond}
	if err := msg.RespondMsg(e.message(msg.Reply)); err != nil {
		t.Error(err)
	}
}

// far is a context that ends long after the test.
func far(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	t.Cleanup(cancel)
	return ctx
}

// from is the IDs from first to last.
func from(first, last int64) []int64 { return slices.Collect(Range{First: first, Last: last}.All()) }

func TestNextSharesRequests(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	first := u.next(far(t), "order", 1)
	held := u.request(1)
	all := u.next(far(t), "order", 100)
	u.waiting("order", 100)
	respond(t, held, "1")
	u.get(first, 1)
	respond(t, u.request(100), "2-51\n1002-1051")
	if got, want := u.get(all, 100), slices.Concat(from(2, 51), from(1002, 1051)); !slices.Equal(got, want) {
		t.Errorf("%d; want %d", got, want)
	}
	u.over()

	// It works again.
	first = u.next(far(t), "order", 1)
	respond(t, u.request(1), "7")
	u.get(first, 1)
	u.over()
}

// Who leaves leaves at once, alone, and its ID goes to another.
func TestNextLeaves(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	first := u.next(far(t), "order", 1)
	held := u.request(1)
	stay := u.next(far(t), "order", 2)
	ctx, cancel := context.WithCancel(t.Context())
	leave := u.next(ctx, "order", 3)
	u.waiting("order", 5)
	respond(t, held, "1")
	u.get(first, 1)

	held = u.request(5)
	early, stop := context.WithCancel(t.Context())
	never := u.next(early, "order", 1)
	u.waiting("order", 1)
	stop() // before it is asked for
	u.fails(never, 1, context.Canceled)
	u.waiting("order", 0)
	later := u.next(far(t), "order", 2)
	u.waiting("order", 2)
	cancel()
	u.fails(leave, 3, context.Canceled)
	respond(t, held, "11-15")
	// Three are over: two go to those who came later, without another request.
	got := slices.Concat(u.get(stay, 2), u.get(later, 2))
	if slices.Sort(got); !slices.Equal(got, from(11, 14)) {
		t.Errorf("%d; want 11 to 14", got)
	}
	u.over()

	// Where those are too few only the others are asked for.
	first = u.next(far(t), "order", 1)
	held = u.request(1)
	ctx, cancel = context.WithCancel(t.Context())
	leave, stay = u.next(ctx, "order", 2), u.next(far(t), "order", 1)
	u.waiting("order", 3)
	respond(t, held, "20")
	u.get(first, 1)
	held = u.request(3)
	later = u.next(far(t), "order", 5)
	u.waiting("order", 5)
	cancel()
	u.fails(leave, 2, context.Canceled)
	respond(t, held, "21-23")
	respond(t, u.request(3), "31-33")
	got = slices.Concat(u.get(stay, 1), u.get(later, 5))
	if slices.Sort(got); !slices.Equal(got, slices.Concat(from(21, 23), from(31, 33))) {
		t.Errorf("%d; want 21 to 23 and 31 to 33", got)
	}
	u.over()
}

// Of IDs that are there not all callers are refused: some were left over.
func TestNextErrorOfTheRest(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	first := u.next(far(t), "order", 1)
	held := u.request(1)
	ctx, cancel := context.WithCancel(t.Context())
	leave, stay := u.next(ctx, "order", 1), u.next(far(t), "order", 1)
	u.waiting("order", 2)
	respond(t, held, "1")
	u.get(first, 1)
	held = u.request(2)
	later := u.next(far(t), "order", 3)
	u.waiting("order", 3)
	cancel()
	u.fails(leave, 1, context.Canceled)
	respond(t, held, "2-3")
	u.get(stay, 1)
	refuse(t, u.request(2), 507, Exhausted)
	var got, failed int
	for range 3 {
		if r := <-later; r.err == nil && (r.id == 2 || r.id == 3) {
			got++
		} else if r.id == 0 && errors.Is(r.err, Exhausted) {
			failed++
		}
	}
	if got != 1 || failed != 2 {
		t.Errorf("%d got the ID that was left over, %d were refused; want 1 and 2", got, failed)
	}
	u.over()
}

// A request that nobody waits for is given up, and holds up nobody.
func TestNextGivesUp(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	ctx, cancel := context.WithCancel(t.Context())
	leave := u.next(ctx, "order", 1)
	u.request(1) // and never answered
	early, stop := context.WithCancel(t.Context())
	second := u.next(early, "order", 2)
	u.waiting("order", 2)
	stop()
	u.fails(second, 2, context.Canceled)
	cancel()
	u.fails(leave, 1, context.Canceled)
	u.over()

	// Those who came meanwhile do not wait for the answer that nobody waits for.
	ctx, cancel = context.WithCancel(t.Context())
	leave = u.next(ctx, "order", 1)
	u.request(1)
	later := u.next(far(t), "order", 2)
	u.waiting("order", 2)
	cancel()
	u.fails(leave, 1, context.Canceled)
	respond(t, u.request(2), "8-9")
	u.get(later, 2)
	u.over()
}

// So is one that is tried again and again.
func TestNextGivesUpTryingAgain(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	ctx, cancel := context.WithCancel(t.Context())
	results := u.next(ctx, "order", 1)
	for range 5 {
		refuse(t, u.request(1), 503, Draining)
	}
	u.request(1)
	cancel()
	u.fails(results, 1, context.Canceled, Draining)
	u.over()
}

// Who wants to leave when the answer is there has its ID.
func TestNextLeavesTooLate(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	g, b, err := u.tagGroups.join("order", func() (*source, error) { return u.tag("order") })
	if err != nil {
		t.Fatal(err)
	}
	respond(t, u.request(1), "5")
	<-b.done
	if u.tagGroups.leave(g, b) {
		t.Error("it leaves without its ID")
	}
	if id, err := b.one(); err != nil || id != 5 {
		t.Errorf("%d, %v", id, err)
	}
	u.over()
}

// The client's timeout is that of callers without a deadline; those who have one keep it.
func TestNextTimeout(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t, Timeout(50*time.Millisecond))
	first := u.next(far(t), "order", 1)
	held := u.request(1)
	impatient := u.next(t.Context(), "order", 3)
	u.fails(impatient, 3, context.DeadlineExceeded)
	stay := u.next(far(t), "order", 3)
	u.waiting("order", 3)
	respond(t, held, "1")
	u.get(first, 1)
	held = u.request(3)
	impatient = u.next(t.Context(), "order", 1)
	u.fails(impatient, 1, context.DeadlineExceeded)
	respond(t, held, "2-4")
	u.get(stay, 3)
	u.over()

	// Of one batch.
	first = u.next(far(t), "order", 1)
	held = u.request(1)
	stay, impatient = u.next(far(t), "order", 2), u.next(t.Context(), "order", 2)
	u.fails(impatient, 2, context.DeadlineExceeded)
	respond(t, held, "5")
	u.get(first, 1)
	respond(t, u.request(2), "6-7")
	u.get(stay, 2)
	u.over()

	// Without one there is none.
	v := newUnderTest(t, Timeout(0))
	forever := v.next(context.Background(), "order", 1)
	respond(t, v.request(1), "1")
	v.get(forever, 1)
	v.over()
}

// What cannot get better is told to all of the batch, and to no other.
func TestNextErrors(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	first := u.next(far(t), "order", 1)
	held := u.request(1)
	batch := u.next(far(t), "order", 10)
	u.waiting("order", 10)
	refuse(t, held, 404, UnknownTag)
	u.fails(first, 1, UnknownTag)
	held = u.request(10)
	later := u.next(far(t), "order", 2)
	u.waiting("order", 2)
	refuse(t, held, 404, UnknownTag)
	u.fails(batch, 10, UnknownTag)
	respond(t, u.request(2), "1-2")
	u.get(later, 2)
	u.over()

	if id, err := u.Next(far(t), "no tag"); !errors.Is(err, BadTag) {
		t.Errorf("%d, %v", id, err)
	}
	for _, answer := range []string{"", "0", "1-2", "5-1", "x"} {
		result := u.next(far(t), "order", 1)
		respond(t, u.request(1), answer)
		if r := <-result; r.err == nil || r.id != 0 {
			t.Errorf("from %q it got %d", answer, r.id)
		}
	}
	u.over()
}

// Where a generator gives few at a time, all get theirs, with as many requests as that takes.
func TestNextLargeBatch(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	first := u.next(far(t), "order", 1)
	held := u.request(1)
	all := u.next(far(t), "order", 100)
	u.waiting("order", 100)
	respond(t, held, "1")
	u.get(first, 1)
	refuse(t, u.request(100), 413, BatchTooLarge)
	refuse(t, u.request(50), 413, BatchTooLarge)
	for i := range 4 {
		respond(t, u.request(25), fmt.Sprintf("%d-%d", 1000*i+1, 1000*i+25))
	}
	want := slices.Concat(from(1, 25), from(1001, 1025), from(2001, 2025), from(3001, 3025))
	if got := u.get(all, 100); !slices.Equal(got, want) {
		t.Errorf("%d", got)
	}
	u.over()
}

func TestNextOfSeveralTags(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	a := u.next(far(t), "a", 1)
	held := u.request(1)
	b := u.next(far(t), "b", 1)
	other := u.request(1)
	if held.Subject != "leaf.segment.a" || other.Subject != "leaf.segment.b" {
		t.Errorf("%s, %s", held.Subject, other.Subject)
	}
	respond(t, other, "2")
	u.get(b, 1)
	flake := make(chan called, 1)
	go func() {
		id, err := u.NextSnowflake(far(t))
		flake <- called{id, err}
	}()
	other = u.request(1)
	if other.Subject != "leaf.snowflake" {
		t.Errorf("%s", other.Subject)
	}
	respond(t, other, "3")
	if got := u.get(flake, 1); got[0] != 3 {
		t.Errorf("the snowflake is %d", got[0])
	}
	respond(t, held, "1")
	u.get(a, 1)
	u.over()
}

// generators answers all requests, as a random one of many generators would, until the returned
// function is called, which tells what was given of each subject.
func (u underTest) generators(random *rand.Rand) (stop func() map[string][]Range) {
	given, last := make(map[string][]Range), make(map[string]int64)
	var all sync.WaitGroup
	ended := make(chan struct{})
	all.Go(func() {
		for {
			var msg *nats.Msg
			select {
			case msg = <-u.requests:
			case <-ended:
				return
			}
			n, err := strconv.ParseInt(string(msg.Data), 10, 64)
			if err != nil || n < 1 {
				u.t.Errorf("a request of %s", msg.Data)
			}
			delay := time.Duration(random.IntN(2000)) * time.Microsecond
			reply := func(f func()) { all.Go(func() { time.Sleep(delay); f() }) }
			switch chance := random.IntN(20); {
			case msg.Subject == "leaf.segment.none":
				reply(func() { refuse(u.t, msg, 404, UnknownTag) })
			case chance == 0:
				reply(func() { refuse(u.t, msg, 503, Draining) })
			case chance == 1:
				reply(func() { refuse(u.t, msg, 429, Overloaded) })
			case n > 20:
				reply(func() { refuse(u.t, msg, 413, BatchTooLarge) })
			default:
				var ranges []Range
				for n > 0 {
					k := 1 + random.Int64N(n)
					first := last[msg.Subject] + 1 + random.Int64N(3)
					last[msg.Subject] = first + k - 1
					ranges = append(ranges, Range{First: first, Last: first + k - 1})
					n -= k
				}
				given[msg.Subject] = append(given[msg.Subject], ranges...)
				reply(func() { respond(u.t, msg, string(AppendReply(nil, ranges, false))) })
			}
		}
	})
	return func() map[string][]Range { close(ended); all.Wait(); return given }
}

// oneWay checks that each ID came once, and from a generator.
func oneWay(t *testing.T, what string, ids []int64, given []Range) {
	t.Helper()
	slices.Sort(ids)
	for i, id := range ids {
		if i > 0 && ids[i-1] == id {
			t.Errorf("%s: %d came twice", what, id)
		}
		for len(given) > 0 && given[0].Last < id {
			given = given[1:]
		}
		if len(given) == 0 || id < given[0].First {
			t.Errorf("%s: %d was not given", what, id)
		}
	}
}

// Callers of all kinds, with contexts that end at any time.
func TestNextAtRandom(t *testing.T) {
	t.Parallel()
	random := allocatortest.Seed(t)
	u := newUnderTest(t, Timeout(nextPatience))
	stop := u.generators(rand.New(rand.NewPCG(random.Uint64(), 0)))
	subjects := []string{"leaf.segment.a", "leaf.segment.b", "leaf.snowflake", "leaf.segment.none"}
	var mu sync.Mutex
	got := make(map[string][]int64)
	var callers sync.WaitGroup
	for range 48 {
		random := rand.New(rand.NewPCG(random.Uint64(), 0))
		callers.Go(func() {
			for range 50 {
				subject := subjects[min(random.IntN(13)/4, 3)]
				ctx, cancel := context.WithCancel(t.Context())
				var may error
				switch random.IntN(5) {
				case 0:
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(random.IntN(3000))*time.Microsecond)
					may = context.DeadlineExceeded
				case 1:
					time.AfterFunc(time.Duration(random.IntN(3000))*time.Microsecond, cancel)
					may = context.Canceled
				case 2:
					if random.IntN(4) == 0 {
						cancel()
						may = context.Canceled
					}
				}
				var id int64
				var err error
				if subject == "leaf.snowflake" {
					id, err = u.NextSnowflake(ctx)
				} else {
					id, err = u.Next(ctx, subject[len("leaf.segment."):])
				}
				cancel()
				switch {
				case err == nil && subject != "leaf.segment.none":
					mu.Lock()
					got[subject] = append(got[subject], id)
					mu.Unlock()
				case err != nil && may != nil && errors.Is(err, may) && id == 0:
				case subject == "leaf.segment.none" && errors.Is(err, UnknownTag) && id == 0:
				default:
					t.Errorf("%s: %d, %v; its context may end with %v", subject, id, err, may)
				}
			}
		})
	}
	callers.Wait()
	u.over()
	given := stop()
	for subject, ids := range got {
		oneWay(t, subject, ids, given[subject])
	}
}

// A pool over NATS: what generators give at most, and what they refuse for a while, callers do not
// notice.
func TestPoolOverNATS(t *testing.T) {
	t.Parallel()
	random := allocatortest.Seed(t)
	u := newUnderTest(t, Timeout(nextPatience))
	stop := u.generators(random)
	got := make(map[string][]int64)
	for subject, pool := range map[string]func() (*Pool, error){
		"leaf.segment.a": func() (*Pool, error) { return u.Pool("a", Ahead(10, 500)) },
		"leaf.snowflake": func() (*Pool, error) { return u.SnowflakePool(Ahead(10, 500)) },
	} {
		p, err := pool()
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var ids []int64
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for range 200 {
					id, err := p.Next(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					ids = append(ids, id)
					mu.Unlock()
				}
			})
		}
		callers.Wait()
		for _, r := range p.Close() {
			ids = slices.AppendSeq(ids, r.All())
		}
		got[subject] = ids
	}

	none, err := u.Pool("none")
	if err != nil {
		t.Fatal(err)
	}
	defer none.Close()
	if id, err := none.Next(t.Context()); !errors.Is(err, UnknownTag) {
		t.Errorf("of no tag: %d, %v", id, err)
	}
	given := stop()
	for subject, ids := range got {
		oneWay(t, subject, ids, given[subject])
	}
}

// Who waits in vain is told of what.
func TestPoolWithoutGenerators(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	p, err := u.Pool("order")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var callers sync.WaitGroup
	callers.Go(func() {
		if id, err := p.Next(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, StoreUnavailable) {
			t.Errorf("%d, %v", id, err)
		}
	})
	refuse(t, u.request(DefaultLeastAhead), 503, StoreUnavailable)
	u.request(DefaultLeastAhead) // it was told
	cancel()
	callers.Wait()
	callers.Go(func() {
		if id, err := p.Next(far(t)); !errors.Is(err, ErrPoolClosed) {
			t.Errorf("%d, %v", id, err)
		}
	})
	soon(t, "the caller waits", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.filling != nil && p.filling.waiting == 1
	})
	p.Close() // of a request that is not answered
	callers.Wait()
}
