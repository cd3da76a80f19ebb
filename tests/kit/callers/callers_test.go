package callers

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

func TestCheck(t *testing.T) {
	at := func(ms int64) time.Time { return time.UnixMilli(ms) }
	call := func(tag string, sent, ended, first, last int64) Call {
		return Call{Kind: "raw", Tag: tag, Sent: at(sent), Ended: at(ended), Ranges: []bus.Range{{First: first, Last: last}}}
	}
	for _, test := range []struct {
		name  string
		calls []Call
		want  string // in the error; empty: all is well
	}{
		{"none twice", []Call{call("a", 0, 1, 1, 5), call("a", 0, 2, 6, 9), call("b", 0, 1, 1, 9)}, ""},
		{"twice", []Call{call("a", 0, 1, 1, 5), call("a", 5, 9, 5, 5)}, "ID 5 was handed out twice"},
		{"an ID that came with an error counts", []Call{
			call("a", 0, 1, 1, 5), {Tag: "a", Err: errors.New("late"), Ranges: []bus.Range{{First: 5, Last: 5}}},
		}, "ID 5 was handed out twice"},
		{"strict, concurrent", []Call{call("strict", 0, 9, 6, 6), call("strict", 1, 9, 5, 5)}, ""},
		{"strict, out of order", []Call{call("strict", 0, 1, 6, 6), call("strict", 2, 3, 5, 5)}, "is not above it"},
		{"below a floor, sent before", []Call{call("floor", 0, 99, 5, 5)}, ""},
		{"below a floor", []Call{call("floor", 51, 99, 5, 5)}, "came below 100"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := check(test.calls, []string{"strict"}, []floor{{"floor", 100, at(50)}})
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("check: %v, want %q", err, test.want)
			}
		})
	}
}

func TestMet(t *testing.T) {
	at := func(ms int64) time.Time { return time.UnixMilli(ms) }
	one := []bus.Range{{First: 1, Last: 1}}
	calls := []Call{
		{Kind: "raw", Sent: at(0), Ended: at(1000), Ranges: one},
		{Kind: "raw", Sent: at(1900), Ended: at(2500), Err: &bus.Error{Code: 503, Reason: bus.Draining}},
		{Kind: "raw", Sent: at(2500), Ended: at(3000), Ranges: one},
		{Kind: "raw", Sent: at(3000), Ended: at(3001), Ranges: one},
		{Kind: "HTTP", Sent: at(0), Ended: at(1500), Ranges: one},
		{Kind: "HTTP", Sent: at(1500), Ended: at(1600), Err: errors.New("refused")},
	}
	met := Meet(calls, at(2000), time.Time{})["raw"]
	if met.Calls != 3 || met.IDs != 2 || met.Failed != 1 || met.Gap != 2*time.Second || met.Reasons["draining"] != 1 {
		t.Errorf("met %+v", met)
	}
	until := Meet(calls, at(2000), at(3000))
	if met := until["raw"]; met.Calls != 2 || met.IDs != 1 || met.Failed != 1 || met.Gap != 2*time.Second {
		t.Errorf("until a time: met %+v", met)
	}
	if met := until["HTTP"]; met.Calls != 0 || met.Gap != 1500*time.Millisecond {
		t.Errorf("no answer at all: met %+v", met)
	}
}

func TestAllKinds(t *testing.T) {
	t.Parallel()
	g := kit.Embed(t, "--http", "127.0.0.1:0", "--tag", "order")
	kit.LeafOK(t, "tag", "add", "strict", "--order", "strict", "-s", g.URL)
	trend := New(t, Config{Tags: []string{"order", Snowflakes}, Batch: 500}).All(g.URL, g.HTTP)
	strict := New(t, Config{Tags: []string{"strict"}, Strict: []string{"strict"}, Batch: 50}).All(g.URL, g.HTTP)
	for _, c := range []*Callers{trend, strict} {
		c.More(100)
		c.MoreOfEach()
		for kind, met := range c.Stop() {
			if met.Failed > 0 {
				t.Errorf("%s: %v", kind, met)
			}
		}
	}
	if len(trend.Ranges("order")) == 0 || trend.Highest("order") == 0 {
		t.Error("no ID of the tag was recorded")
	}
	kit.Must(t, g.Stop())
}

// Callers that start before any server connect when it comes, and pass every call to Record.
func TestRecord(t *testing.T) {
	t.Parallel()
	address := testkit.FreeAddress(t)
	var mu sync.Mutex
	var taken allocatortest.Checker
	var answered, failed int64
	cfg := Config{
		Tags: []string{"order"}, Batch: 50, Deadline: time.Second, MayFail: AnyFailure,
		Options: []nats.Option{nats.RetryOnFailedConnect(true)}, Seed: 1,
		Record: func(call Call) {
			mu.Lock()
			defer mu.Unlock()
			taken.Add(call.Ranges...)
			if call.Err == nil {
				answered++
			} else {
				failed++
			}
		},
	}
	c := New(t, cfg).All("nats://" + address)
	testkit.Eventually(t, "a failed call", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return failed > 0
	})
	kit.Serve(t, t.TempDir(), "--listen", address, "--tag", "order")
	c.MoreOfEach()
	c.Stop()
	ids, err := taken.Check()
	if err != nil || ids == 0 || answered != c.Answered() {
		t.Errorf("Record saw %d calls with %d IDs (%v), of %d", answered, ids, err, c.Answered())
	}
	if c.Ranges("order") != nil {
		t.Error("a call was kept, too")
	}
}
