package generator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
)

// withInvoice adds the strict tag invoice.
func withInvoice(t *testing.T, records allocator.Records) {
	t.Helper()
	add(t, records, allocator.Tag{Name: "invoice", Order: allocator.Strict})
}

// report publishes a heartbeat of a generator that is not there, and waits until g has heard it. Flags are more fields
// of the JSON.
func (r *running) report(t *testing.T, nc *nats.Conn, node, flags string) {
	t.Helper()
	gone := strings.Contains(flags, "gone")
	if gone {
		r.report(t, nc, node, "")
	}
	beat := fmt.Sprintf(`{"node":"%s","id":"run-of-%s","number":1,"unix_ms":%d%s}`, node, node, time.Now().UnixMilli(), flags)
	if err := nc.Publish(wire.SubjectPresence, []byte(beat)); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the heartbeat of "+node, func() bool { return r.Hears(node) != gone })
}

// Each answer with IDs of a strict tag has the header. Its claims are in no event.
func TestStrictAnswers(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store := memory(t, "order")
	withInvoice(t, store)
	start(t, s, "one", store, nil)
	nc := natskit.Connect(t, s)
	list := eventsOn(t, nc)
	next := int64(1)
	for _, c := range []struct {
		tag, body, order string
		n                int64
	}{
		{"invoice", "", "strict", 1}, {"invoice", "5", "strict", 5}, {"invoice", `{"count":3}`, "strict", 3}, {"invoice", "1001", "strict", 1001},
		{"order", "5", "", 0}, {"invoice", "0", "", 0},
	} {
		msg, err := nc.Request("leaf.segment."+c.tag, []byte(c.body), testkit.Patience)
		if err != nil || msg.Header.Get(wire.HeaderOrder) != c.order {
			t.Errorf("%s %q is answered with %v, %v", c.tag, c.body, msg, err)
			continue
		}
		if c.n == 0 {
			continue
		}
		ranges, err := wire.ParseReply(msg.Data)
		if strings.HasPrefix(c.body, "{") {
			ranges, err = []bus.Range{{First: next, Last: next + c.n - 1}}, nil
			if want := fmt.Sprintf(`"ranges":[{"first":"%d","last":"%d"}]`, next, next+c.n-1); !strings.Contains(string(msg.Data), want) {
				t.Errorf("%s, want %s", msg.Data, want)
			}
		}
		if err != nil || len(ranges) != 1 || ranges[0].First != next || ranges[0].Len() != c.n {
			t.Errorf("%q is answered with %s, %v; want %d IDs from %d on", c.body, msg.Data, err, c.n, next)
		}
		next += c.n
	}
	if end := store.Snapshot()["invoice"].MaxID; end != next {
		t.Errorf("the record ends at %d, and the answers at %d", end, next)
	}
	testkit.Eventually(t, "the event of the tag in trend order", func() bool { return len(list("leaf.segment.refill")) > 0 })
	for _, e := range list("leaf.segment.refill") {
		if e.Key != "order" {
			t.Errorf("a strict tag has the event %+v", e)
		}
	}
}

// contested are records in which another run is faster, so many times.
func contested(r allocator.Records, run string, conflicts int) writing {
	own, left := open(r), atomic.Int64{}
	left.Store(int64(conflicts))
	return writing{own, func(ctx context.Context, t allocator.Tag, revision uint64) (uint64, error) {
		if left.Add(-1) >= 0 {
			s, err := own.Load(ctx, t.Name)
			if s.Last.Run = run; err == nil {
				_, err = own.Swap(ctx, s.Tag, s.Revision)
			}
			if err != nil {
				return 0, err
			}
		}
		return own.Swap(ctx, t, revision)
	}}
}

// A request to claim IDs for another generator is answered with one run, or refused. One that cannot be read has no
// answer.
func TestClaimForAnotherGenerator(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	store := memory(t, "order")
	withInvoice(t, store)
	nc := natskit.Connect(t, s)
	one := start(t, s, "one", store, nil)
	for _, tag := range []string{"invoice", "order"} { // from then on it knows them
		if _, code := ask(t, nc, "leaf.segment."+tag, "2"); code != "" {
			t.Fatal(code)
		}
	}
	subject := wire.SubjectTake + "." + one.RunID()
	for _, body := range []string{"", "garbage", `{"tag":7}`, `{"tag":"invoice","count":"5"}`} {
		if msg, err := nc.Request(subject, []byte(body), 50*time.Millisecond); !errors.Is(err, nats.ErrTimeout) {
			t.Errorf("%q is answered with %v, %v", body, msg, err)
		}
	}
	for body, want := range map[string]string{
		`"tag":"nosuch","count":5`:                    "404",
		`"tag":"order","count":0`:                     "400",
		`"count":-1`:                                  "400",
		`"tag":"invoice","count":0`:                   "400",
		`"tag":"invoice"`:                             "400",
		`"tag":"invoice","count":-5`:                  "400",
		`"tag":"invoice","count":9223372036854775807`: "400",
	} {
		body = fmt.Sprintf(`{%s,"wait_ms":10000}`, body)
		if reply, code := ask(t, nc, subject, body); code != want {
			t.Errorf("%s is answered with %s %s, want %s", body, code, reply, want)
		}
	}
	if reply, code := ask(t, nc, subject, `{"tag":"invoice","count":2000000,"wait_ms":10000}`); code != "" || reply != "3-2000002" { // many requests together
		t.Errorf("%s %s", code, reply)
	}
	for body, want := range map[string]int{`{"tag":"order","count":5,"wait_ms":1}`: 5, `{"tag":"order","count":50,"wait_ms":10000}`: 50, `{"count":7}`: 7} {
		if reply, code := ask(t, nc, subject, body); code != "" || count(t, reply) != want {
			t.Errorf("%s is answered with %s %s", body, code, reply)
		}
	}
	if end := store.Snapshot()["invoice"].MaxID; end != 2000003 {
		t.Errorf("the record ends at %d", end)
	}
}
