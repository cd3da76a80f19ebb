package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
)

// underTest is a client, and the requests that generators would get from it.
type underTest struct {
	*Client
	t        *testing.T
	requests chan *nats.Msg
}

func newUnderTest(t *testing.T, opts ...Option) underTest {
	t.Helper()
	s := natskit.Start(t)
	var conns [2]*nats.Conn
	for i := range conns {
		conns[i] = natskit.Connect(t, s)
	}
	u := underTest{NewClient(conns[0], append([]Option{patient}, opts...)...), t, make(chan *nats.Msg, 1000)}
	if _, err := conns[1].ChanSubscribe("leaf.>", u.requests); err != nil {
		t.Fatal(err)
	}
	if err := conns[1].Flush(); err != nil {
		t.Fatal(err)
	}
	return u
}

// patient makes a client ask again only when its callers have waited for long. So what a test holds back is asked for
// once.
func patient(c *Client) { c.x.hedging, c.timeout = false, time.Hour }

// conn is the client's connection.
func (u underTest) conn() *nats.Conn { return u.x.lines[0].(*line).nc }

// request returns the next request, which must be of n IDs.
func (u underTest) request(n int) *nats.Msg {
	u.t.Helper()
	select {
	case msg := <-u.requests:
		if string(msg.Data) != strconv.Itoa(n) {
			u.t.Fatalf("%s IDs are asked for, want %d", msg.Data, n)
		}
		return msg
	case <-time.After(testkit.Patience):
		u.t.Fatal("no request came")
	}
	return nil
}

// over checks that nothing is left of the callers, and that there was no other request. A request that was sent again,
// because a test that answers late is no different from a generator that does, is none.
func (u underTest) over() {
	u.t.Helper()
	u.left()
	again := int(u.Stats().Retries)
	for len(u.requests) > 0 {
		if msg := <-u.requests; again == 0 {
			u.t.Errorf("one more request, of %s", msg.Data)
		} else {
			again--
		}
	}
}

// left waits until nothing is left of the callers.
func (u underTest) left() {
	u.t.Helper()
	testkit.Eventually(u.t, "nothing is left of the callers", func() bool {
		u.tagGroups.mu.Lock()
		defer u.tagGroups.mu.Unlock()
		u.flakeGroups.mu.Lock()
		defer u.flakeGroups.mu.Unlock()
		return len(u.tagGroups.of)+len(u.flakeGroups.of) == 0
	})
}

// waiting waits until n callers wait for the next request of a tag.
func (u underTest) waiting(tag string, n int) {
	u.t.Helper()
	testkit.Eventually(u.t, fmt.Sprintf("%d callers wait", n), func() bool {
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
		case <-time.After(testkit.Patience):
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
		case <-time.After(testkit.Patience):
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

// respondStrict is respond for a strict tag.
func respondStrict(t *testing.T, msg *nats.Msg, answer string) {
	t.Helper()
	reply := nats.Msg{Header: nats.Header{wire.HeaderOrder: {idspace.OrderStrict}}, Data: []byte(answer)}
	if err := msg.RespondMsg(&reply); err != nil {
		t.Error(err)
	}
}

func refuse(t *testing.T, msg *nats.Msg, code int, reason Reason) {
	t.Helper()
	refuseFor(t, msg, code, reason, time.Millisecond)
}

func refuseFor(t *testing.T, msg *nats.Msg, code int, reason Reason, hint time.Duration) {
	t.Helper()
	e := &Error{Code: code, Reason: reason, Message: "no", RetryAfter: hint}
	answer := nats.NewMsg(msg.Reply)
	answer.Header.Set("Nats-Service-Error-Code", strconv.Itoa(code))
	answer.Data = wire.Encode(e)
	if err := msg.RespondMsg(answer); err != nil {
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
