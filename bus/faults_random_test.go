package bus

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

const (
	faultsNexts   = 20_000 // so many calls of Next must succeed
	faultsCallers = 48
	faultsMost    = 20 // IDs in one request: what such a generator gives
)

// faultsSubjects are what the callers ask for. The first is a strict tag.
var faultsSubjects = []string{"leaf.segment.invoice", "leaf.segment.a", "leaf.segment.b", SubjectSnowflake}

// faulty is generators that are killed, cut off and frozen at random moments.
type faulty struct {
	t       *testing.T
	url     string
	answers sync.WaitGroup // those under way

	mu     sync.Mutex
	random *rand.Rand
	last   map[string]int64 // by subject
	given  map[string][]Range
}

// connect connects to NATS through a proxy, which is where the faults are.
func (f *faulty) connect(way *kit.Link) *nats.Conn {
	nc, err := nats.Connect("nats://"+way.Addr(), nats.IgnoreDiscoveredServers(), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(time.Millisecond), nats.ReconnectJitter(0, 0), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		f.t.Error(err)
	}
	return nc
}

// way returns a way to NATS that lasts until the test ends.
func (f *faulty) way() *kit.Link {
	f.t.Helper()
	way, err := kit.StartLink(strings.TrimPrefix(f.url, "nats://"))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(way.Close)
	return way
}

// generator is one generator and its faults, until ctx ends.
func (f *faulty) generator(ctx context.Context, way *kit.Link, random *rand.Rand) {
	var deaf atomic.Bool
	start := func() *nats.Conn {
		nc := f.connect(way)
		for _, subject := range []string{SubjectSegment + ".>", SubjectSnowflake} {
			if _, err := nc.QueueSubscribe(subject, "leaf", func(msg *nats.Msg) {
				if !deaf.Load() {
					f.answer(msg)
				}
			}); err != nil {
				f.t.Error(err)
			}
		}
		return nc
	}
	nc := start()
	for pause(ctx, random, time.Second) {
		switch random.IntN(4) {
		case 0: // killed, and started again
			nc.Close()
			pause(ctx, random, 50*time.Millisecond)
			nc = start()
		case 1: // frozen, or silent: what it is asked and what it says comes late
			during(ctx, random, 200*time.Millisecond, way.Hang)
		case 2: // the connection is lost
			during(ctx, random, 50*time.Millisecond, way.Refuse)
		case 3: // the requests are lost
			during(ctx, random, 50*time.Millisecond, deaf.Store)
		}
	}
	nc.Close()
}

// pause waits for a random time. It returns false if ctx ended.
func pause(ctx context.Context, random *rand.Rand, most time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Duration(random.Int64N(int64(most)))):
		return true
	}
}

// during sets a fault for a random time.
func during(ctx context.Context, random *rand.Rand, most time.Duration, set func(bool)) {
	set(true)
	pause(ctx, random, most)
	set(false)
}

// answer gives IDs, or refuses. It may do so late, or never.
func (f *faulty) answer(msg *nats.Msg) {
	request, err := ParseRequest(msg.Data)
	if err != nil {
		f.t.Errorf("a request of %q: %v", msg.Data, err)
		return
	}
	reply := nats.NewMsg(msg.Reply)
	f.mu.Lock()
	defer f.mu.Unlock()
	chance, after := f.random.IntN(2000), time.Duration(0)
	switch {
	case chance == 0:
		refusal(reply, 503, Draining)
	case chance == 1:
		refusal(reply, 429, Overloaded)
	case request.Count > faultsMost:
		refusal(reply, 413, BatchTooLarge)
	default:
		ranges := f.give(msg.Subject, request.Count)
		reply.Data = AppendReply(nil, ranges, false)
		if msg.Subject == faultsSubjects[0] {
			reply.Header.Set(HeaderOrder, OrderStrict)
		}
	}
	switch {
	case chance == 2: // its answer is lost
		return
	case chance == 3:
		after = f.randomTime(100 * time.Millisecond)
	case chance < 200:
		after = f.randomTime(2 * time.Millisecond)
	}
	send := func() { _ = msg.RespondMsg(reply) } // the generator may have been killed meanwhile
	if after == 0 {
		send()
		return
	}
	f.answers.Go(func() { time.Sleep(after); send() })
}

func (f *faulty) randomTime(most time.Duration) time.Duration {
	return time.Duration(f.random.Int64N(int64(most)))
}

// give returns n IDs that were never given before: of the strict tag one range, of the others several.
func (f *faulty) give(subject string, n int64) (ranges []Range) {
	for n > 0 {
		k := n
		if subject != faultsSubjects[0] {
			k = 1 + f.random.Int64N(n)
		}
		first := f.last[subject] + 1 + f.random.Int64N(3)
		f.last[subject] = first + k - 1
		ranges = append(ranges, Range{First: first, Last: first + k - 1})
		n -= k
	}
	f.given[subject] = append(f.given[subject], ranges...)
	return ranges
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

func refusal(reply *nats.Msg, code int, reason Reason) {
	reply.Header.Set("Nats-Service-Error-Code", strconv.Itoa(code))
	reply.Data = wire.Encode(&Error{Code: code, Reason: reason, Message: "no", RetryAfter: time.Millisecond})
}

// faultsCaller is what one caller of a client did.
type faultsCaller struct {
	*Client
	t             *testing.T
	random        *rand.Rand
	pools         map[string]*Pool // by subject
	got           map[string][]int64
	history       *allocatortest.History // of the strict tag
	nexts         *atomic.Int64          // calls of Next that succeeded, of all callers
	calls, failed int                    // without those that the caller left
}

// call makes one call of a random kind.
func (c *faultsCaller) call() {
	// From 1 to 500 ms: a tenth below 18 ms, half below 139 ms.
	deadline := time.Duration(float64(time.Millisecond) * math.Pow(500, math.Cbrt(c.random.Float64())))
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	subject := faultsSubjects[c.random.IntN(len(faultsSubjects))]
	tag, isTag := strings.CutPrefix(subject, SubjectSegment+".")
	began := time.Now()
	var err error
	single := func(id int64, e error) {
		if err = e; err == nil {
			c.add(subject, began, Range{First: id, Last: id})
		} else if id != 0 {
			c.t.Errorf("%s: ID %d with an error: %v", subject, id, err)
		}
	}
	next := func() {
		if !isTag {
			single(c.NextSnowflake(ctx))
			return
		}
		if single(c.Next(ctx, tag)); err == nil {
			c.nexts.Add(1)
		}
	}
	left := false
	switch chance := c.random.IntN(100); {
	case chance < 2:
		left = true
		stop := time.AfterFunc(time.Duration(c.random.Int64N(int64(3*time.Millisecond))), cancel)
		next()
		stop.Stop()
	case chance < 6:
		var ranges []Range
		if n := 1 + c.random.Int64N(faultsMost); isTag {
			ranges, err = c.Take(ctx, tag, n)
		} else {
			ranges, err = c.Snowflakes(ctx, n)
		}
		c.add(subject, began, ranges...)
	case chance < 8:
		n, opts := 1+c.random.Int64N(3*faultsMost), []BulkOption{Batch(1 + c.random.Int64N(2*faultsMost)), Parallel(1 + c.random.IntN(4))}
		ranges := c.SnowflakeRanges(ctx, n, opts...)
		if isTag {
			ranges = c.Ranges(ctx, tag, n, opts...)
		}
		for r, e := range ranges {
			if err = e; err == nil {
				c.add(subject, began, r)
			}
			began = time.Now()
		}
	case chance < 20 && c.pools[subject] != nil:
		single(c.pools[subject].Next(ctx))
	default:
		next()
	}
	if left {
		return
	}
	if c.calls++; err == nil {
		return
	}
	c.failed++
	if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() == nil {
		c.t.Errorf("%s: a call failed, and not because of its deadline: %v", subject, err)
	}
}

// add takes down IDs that came.
func (c *faultsCaller) add(subject string, began time.Time, ranges ...Range) {
	for _, r := range ranges {
		for id := range r.All() {
			c.got[subject] = append(c.got[subject], id)
		}
	}
	if subject == faultsSubjects[0] && len(ranges) > 0 {
		c.history.Add(began, time.Now(), ranges...)
	}
}

// Callers of all kinds with deadlines of 1 to 500 ms ask generators that are killed, frozen and cut off. Nearly all
// calls succeed. No ID comes twice, each was given by a generator, and those of a strict tag are in order.
func TestFaultsAtRandom(t *testing.T) {
	random := allocatortest.Seed(t)
	t.Run("callers", func(t *testing.T) { faultsAtRandom(t, random) })
	goleak.VerifyNone(t)
}

func faultsAtRandom(t *testing.T, random *rand.Rand) {
	split := func() *rand.Rand { return rand.New(rand.NewPCG(random.Uint64(), random.Uint64())) }
	f := &faulty{
		t: t, url: natskit.Start(t).ClientURL(), random: split(), last: make(map[string]int64), given: make(map[string][]Range),
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var faults, callers sync.WaitGroup
	for range 3 {
		way, random := f.way(), split()
		faults.Go(func() { f.generator(ctx, way, random) })
	}
	var history allocatortest.History
	var nexts atomic.Int64
	var all []*faultsCaller
	for range 2 {
		way, random := f.way(), split()
		nc := f.connect(way)
		defer nc.Close()
		faults.Go(func() { f.unsteady(ctx, way, random) })
		client := NewClient(nc)
		pools := faultsPools(t, client)
		for range faultsCallers / 2 {
			c := &faultsCaller{
				Client: client, t: t, random: split(), pools: pools, got: make(map[string][]int64), history: &history, nexts: &nexts,
			}
			all = append(all, c)
			callers.Go(func() {
				for nexts.Load() < faultsNexts && !t.Failed() {
					c.call()
				}
			})
		}
	}
	callers.Wait()
	cancel()
	faults.Wait()
	f.answers.Wait()

	got := make(map[string][]int64)
	calls, failed := 0, 0
	for _, c := range all {
		underTest{Client: c.Client, t: t}.over()
		for subject, pool := range c.pools {
			for _, r := range pool.Close() { // nothing if it was closed before
				c.add(subject, time.Time{}, r)
			}
		}
		testkit.Eventually(t, "no call to wait for an answer", func() bool { // that of a pool ends just after the pool
			c.inbox.mu.Lock()
			defer c.inbox.mu.Unlock()
			for _, r := range c.inbox.open {
				if r.p != nil {
					return false
				}
			}
			return true
		})
		for subject, ids := range c.got {
			got[subject] = append(got[subject], ids...)
		}
		calls, failed = calls+c.calls, failed+c.failed
	}
	for _, subject := range faultsSubjects {
		if len(got[subject]) == 0 {
			t.Errorf("%s: no ID came", subject)
		}
		oneWay(t, subject, got[subject], f.given[subject])
	}
	if n, err := history.Check(); err != nil {
		t.Errorf("%d requests of the strict tag: %v", n, err)
	}
	t.Logf("%d of %d calls failed, and %d of Next succeeded. The clients counted %+v and %+v", failed, calls, nexts.Load(),
		all[0].Stats(), all[len(all)-1].Stats())
	if failed*10 > calls {
		t.Error("too many calls failed")
	}
}

// unsteady is what happens to the connection of a client.
func (f *faulty) unsteady(ctx context.Context, way *kit.Link, random *rand.Rand) {
	for pause(ctx, random, 2*time.Second) {
		during(ctx, random, 20*time.Millisecond, way.Hang)
		if random.IntN(2) == 0 {
			during(ctx, random, 20*time.Millisecond, way.Refuse)
		}
	}
}

// faultsPools returns a small pool of each subject that is not strict.
func faultsPools(t *testing.T, client *Client) map[string]*Pool {
	t.Helper()
	pools := make(map[string]*Pool)
	for _, subject := range faultsSubjects[1:] {
		var err error
		if tag, ok := strings.CutPrefix(subject, SubjectSegment+"."); ok {
			pools[subject], err = client.Pool(tag, Ahead(1, 2*faultsMost))
		} else {
			pools[subject], err = client.SnowflakePool(Ahead(1, 2*faultsMost), MaxAge(20*time.Millisecond))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return pools
}
