package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// parts are what a snowflake of the default layout is made of.
type parts struct{ ms, worker, sequence int64 }

func partsOf(id int64) parts {
	const epoch = 1288834974657
	return parts{id>>22 + epoch, id >> 12 & 1023, id & 4095}
}

// snowflakes asks for IDs and returns their ranges, which must be granted.
func snowflakes(t *testing.T, nc *nats.Conn, body string) []bus.Range {
	t.Helper()
	msg := ask(t, nc, "leaf.snowflake", body)
	granted(t, msg)
	ranges, err := bus.ParseReply(msg.Data)
	if err != nil {
		t.Fatal(err)
	}
	return ranges
}

// snowflake asks for one ID, as often as it takes.
func snowflake(t *testing.T, nc *nats.Conn) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ranges, err := bus.NewClient(nc).Snowflakes(ctx, 1)
	if err != nil {
		t.Fatalf("a snowflake: %v", err)
	}
	return ranges[0].First
}

// answers sends an empty request and returns all answers that come soon: how
// many there will be is not known.
func answers(t *testing.T, nc *nats.Conn, subject string) []*nats.Msg {
	t.Helper()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	if err := nc.PublishRequest(subject, inbox, nil); err != nil {
		t.Fatal(err)
	}
	var found []*nats.Msg
	for {
		msg, err := sub.NextMsg(200 * time.Millisecond)
		if errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, msg)
	}
}

// Exactly as many IDs come as were asked for, each greater than all before, of
// the generator's worker and of the time of the request.
func TestRequestsForSnowflakes(t *testing.T) {
	t.Parallel()
	nc := connect(t, embed(t, "--worker-id", "1023").url)
	const lag = 50 // ms that an ID may be older than the request: what was not used is used up
	one := regexp.MustCompile(`^[1-9][0-9]*$`)
	last := int64(0)
	for _, c := range []struct {
		body  string
		count int64
		json  bool
	}{
		{body: "", count: 1},
		{body: " \t\r\n", count: 1},
		{body: "1", count: 1},
		{body: "2", count: 2},
		{body: "\n  100\r\n", count: 100},
		{body: "5000", count: 5000}, // more than a millisecond has
		{body: "1000000", count: 1_000_000},
		{body: `{}`, count: 1, json: true},
		{body: ` { } `, count: 1, json: true},
		{body: `{"count":1}`, count: 1, json: true},
		{body: "{\n\"count\": 100\n}\n", count: 100, json: true},
		{body: `{"count":5000}`, count: 5000, json: true},
	} {
		before := time.Now().UnixMilli()
		msg := ask(t, nc, "leaf.snowflake", c.body)
		after := time.Now().UnixMilli()
		granted(t, msg)
		ranges := []bus.Range{}
		if c.json {
			var pairs []string
			for _, r := range parse[rangesReply](t, msg.Data).Ranges {
				first, err1 := strconv.ParseInt(r.First, 10, 64)
				last, err2 := strconv.ParseInt(r.Last, 10, 64)
				if err1 != nil || err2 != nil {
					t.Fatalf("range %+v", r)
				}
				ranges = append(ranges, bus.Range{First: first, Last: last})
				pairs = append(pairs, fmt.Sprintf(`{"first":"%d","last":"%d"}`, first, last))
			}
			if want := fmt.Sprintf(`{"count":%d,"ranges":[%s]}`, c.count, strings.Join(pairs, ",")); string(msg.Data) != want {
				t.Errorf("%q is answered with %q, want it as %q", c.body, msg.Data, want)
			}
		} else {
			var lines []string
			for line := range strings.SplitSeq(string(msg.Data), "\n") {
				from, to, isRun := strings.Cut(line, "-")
				if !isRun {
					to = from
				}
				first, err1 := strconv.ParseInt(from, 10, 64)
				last, err2 := strconv.ParseInt(to, 10, 64)
				if err1 != nil || err2 != nil || isRun && first == last {
					t.Fatalf("%q is answered with the line %q", c.body, line)
				}
				ranges = append(ranges, bus.Range{First: first, Last: last})
				lines = append(lines, line)
			}
			if c.count == 1 && (len(lines) != 1 || !one.MatchString(lines[0])) {
				t.Errorf("%q is answered with %q, want a number and nothing else", c.body, msg.Data)
			}
		}
		count := int64(0)
		for i, r := range ranges {
			first, end := partsOf(r.First), partsOf(r.Last)
			if r.First <= last || first.ms != end.ms || first.worker != 1023 || end.worker != 1023 {
				t.Fatalf("%q: the range %v (%+v to %+v) came after %d", c.body, r, first, end, last)
			}
			if i > 0 && r.First == last+1 {
				t.Errorf("%q: %v belongs to the range before", c.body, r)
			}
			if first.ms < before-lag || first.ms > after {
				t.Errorf("%q: ID %d has the time %d, but was asked for between %d and %d", c.body, r.First, first.ms, before, after)
			}
			count += r.Len()
			last = r.Last
		}
		if count != c.count {
			t.Errorf("%q is answered with %d IDs, want %d", c.body, count, c.count)
		}
	}
}

// Each bad request gets the contract's error.
func TestBadRequestsForSnowflakes(t *testing.T) {
	t.Parallel()
	g := embed(t, "--max-batch", "500")
	nc := connect(t, g.url)
	for body, want := range map[string]bus.Reason{
		"0": bus.BadRequest, "-1": bus.BadRequest, "1.5": bus.BadRequest, "05": bus.BadRequest, "+5": bus.BadRequest,
		"5 5": bus.BadRequest, "many": bus.BadRequest, "\x00": bus.BadRequest, "<b>&": bus.BadRequest,
		`{"count":0}`: bus.BadRequest, `{"count":"5"}`: bus.BadRequest, `{"count":null}`: bus.BadRequest, `{"Count":5}`: bus.BadRequest,
		`{"count":5,"tag":"x"}`: bus.BadRequest, `{"count":5`: bus.BadRequest, `[5]`: bus.BadRequest, `null`: bus.BadRequest,
		"501": bus.BatchTooLarge, `{"count":501}`: bus.BatchTooLarge, "9223372036854775807": bus.BatchTooLarge, "12345678901234567890": bus.BatchTooLarge,
	} {
		code := 400
		if want == bus.BatchTooLarge {
			code = 413
		}
		refused(t, ask(t, nc, "leaf.snowflake", body), code, want)
	}
	snowflakes(t, nc, "500")
	// Nobody would get the IDs: it takes none.
	if err := nc.Publish("leaf.snowflake", []byte("500")); err != nil {
		t.Fatal(err)
	}
	snowflakes(t, nc, "")
	var n bus.Counts
	testkit.Eventually(t, "the last request to be counted", func() bool { // which is done after it was answered
		n = states(t, bus.NewClient(nc), 1)[0].Counts
		return n.IDs >= 501
	})
	if n.IDs != 501 || n.Requests != 2 || n.Errors[bus.BadRequest] != 17 || n.Errors[bus.BatchTooLarge] != 4 {
		t.Errorf("counts %+v, want 501 IDs in 2 requests", n)
	}
}

// At low traffic the IDs of different milliseconds begin anywhere from 0 to 127, so
// that they spread over shards of id % n.
func TestSnowflakesSpread(t *testing.T) {
	t.Parallel()
	nc := connect(t, embed(t).url)
	begins := make(map[int64]int)
	shards := make(map[int64]int)
	for last, n := int64(0), 0; n < 200; {
		p := partsOf(snowflakes(t, nc, "")[0].First)
		if p.ms == last {
			continue
		}
		if p.sequence > 127 {
			t.Errorf("a millisecond begins at %d", p.sequence)
		}
		begins[p.sequence]++
		shards[p.sequence%8]++
		last, n = p.ms, n+1
	}
	if len(begins) < 50 || len(shards) < 8 {
		t.Errorf("200 milliseconds begin at %d different numbers, in %d of 8 shards", len(begins), len(shards))
	}
}

// Any generator takes a snowflake apart, with one format to the letter.
func TestDecode(t *testing.T) {
	t.Parallel()
	g := embed(t, "--worker-id", "3")
	nc := connect(t, g.url)
	r := snowflakes(t, nc, "50")[0]
	for _, id := range []int64{r.First, r.Last} {
		p := partsOf(id)
		at := time.UnixMilli(p.ms).UTC().Format("2006-01-02T15:04:05.000Z")
		want := fmt.Sprintf(`{"id":"%d","time":"%s","unix_ms":%d,"worker":3,"sequence":%d}`, id, at, p.ms, p.sequence)
		for _, body := range []string{fmt.Sprint(id), fmt.Sprintf(" %d\r\n", id)} {
			msg := ask(t, nc, "leaf.decode", body)
			granted(t, msg)
			if string(msg.Data) != want {
				t.Errorf("%q is answered with %s, want %s", body, msg.Data, want)
			}
		}
	}
	// Of another worker, a long time ago: the first millisecond of the layout.
	if got, want := string(ask(t, nc, "leaf.decode", "4198399").Data),
		`{"id":"4198399","time":"2010-11-04T01:42:54.658Z","unix_ms":1288834974658,"worker":0,"sequence":4095}`; got != want {
		t.Errorf("4198399 is answered with %s, want %s", got, want)
	}
	future := r.First + time.Hour.Milliseconds()<<22
	for _, body := range []string{fmt.Sprint(future), "9223372036854775807", "0", "-1", fmt.Sprint(-r.First),
		"9223372036854775808", "+" + fmt.Sprint(r.First), "0" + fmt.Sprint(r.First), "", "text", "1.5", "0x10", "<b>", `{"id":"1"}`, "\xff", strings.Repeat("1", 100_000)} {
		msg := ask(t, nc, "leaf.decode", body)
		refused(t, msg, 400, bus.BadRequest)
		if len(msg.Data) > 1000 {
			t.Errorf("%.20q is answered with %d bytes", body, len(msg.Data))
		}
	}
}

// The service of snowflakes is found as any NATS micro service is, and the
// state of the generator names the worker and the clock.
func TestSnowflakeService(t *testing.T) {
	t.Parallel()
	g := embed(t, "--node", "one", "--worker-id", "6")
	nc := connect(t, g.url)
	for _, p := range askAll[micro.Ping](t, nc, "$SRV.PING.leaf-snowflake", 1) {
		if p.Name != "leaf-snowflake" || p.Version == "" || p.ID == "" || p.Metadata["node"] != "one" {
			t.Errorf("PING: %+v", p)
		}
	}
	groups := make(map[string]string) // by subject
	for _, name := range []string{"leaf", "leaf-snowflake"} {
		for _, i := range askAll[micro.Info](t, nc, "$SRV.INFO."+name, 1) {
			if i.Description == "" {
				t.Errorf("%s has no description", name)
			}
			for _, e := range i.Endpoints {
				groups[e.Subject] = e.QueueGroup
			}
		}
	}
	for subject, want := range map[string]string{"leaf.snowflake": "leaf", "leaf.decode": "leaf", "leaf.admin.workers.list": "leaf", "leaf.admin.workers.release": "leaf", "leaf.clock": ""} {
		if group, ok := groups[subject]; !ok || group != want {
			t.Errorf("INFO has %s in queue group %q (%v), want %q", subject, group, ok, want)
		}
	}

	snowflakes(t, nc, "700")
	testkit.Eventually(t, "them to be counted", func() bool { return states(t, bus.NewClient(nc), 1)[0].Counts.IDs >= 700 })
	before := time.Now().UnixMilli()
	with := 0
	for _, s := range askAll[micro.Stats](t, nc, "$SRV.STATS.leaf", 1) {
		for _, e := range s.Endpoints {
			if len(e.Data) == 0 {
				continue
			}
			with++
			if len(e.Data) >= 16<<10 {
				t.Errorf("the state has %d bytes", len(e.Data))
			}
			var state struct {
				Worker        *int64
				ReservedUntil int64 `json:"reserved_until_ms"`
				Clock         struct {
					UnixMS int64 `json:"unix_ms"`
				}
				Ready  bool
				Counts struct{ IDs int64 }
			}
			if err := json.Unmarshal(e.Data, &state); err != nil {
				t.Fatal(err)
			}
			if state.Worker == nil || *state.Worker != 6 || state.ReservedUntil <= before || !state.Ready ||
				state.Clock.UnixMS < before || state.Clock.UnixMS > time.Now().UnixMilli() || state.Counts.IDs != 700 {
				t.Errorf("state %s", e.Data)
			}
		}
	}
	for _, s := range askAll[micro.Stats](t, nc, "$SRV.STATS.leaf-snowflake", 1) {
		for _, e := range s.Endpoints {
			if e.NumRequests != 1 || len(e.Data) > 0 {
				t.Errorf("STATS of leaf-snowflake: %+v", e)
			}
		}
	}
	if with != 1 {
		t.Errorf("%d endpoints of leaf have data, want one", with)
	}
}

// A generator is told to stop with thousands of requests in its queues: each is
// answered, with IDs or with the word that it is draining.
func TestStopUnderLoadOfSnowflakes(t *testing.T) {
	t.Parallel()
	const small, large = 5000, 500 // the layout has no more than 4,096 IDs a millisecond
	server := newNATS(t)
	g := serve(t, t.TempDir(), "-s", server.ClientURL(), "--drain-timeout", "200ms")
	nc := connect(t, server.ClientURL())
	snowflake(t, nc)
	g.freeze() // while they pile up
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	for i := range small + large {
		body := "3"
		if i%(small/large+1) == 0 {
			body = "10000" // waits for its turn
		}
		if err := nc.PublishRequest("leaf.snowflake", inbox, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	g.signal(syscall.SIGTERM)
	g.signal(syscall.SIGCONT)
	var checker allocatortest.Checker
	granted, draining := 0, 0
	for range small + large {
		msg, err := sub.NextMsg(patience)
		if err != nil {
			t.Fatalf("%d requests got IDs, %d were refused, and then: %v", granted, draining, err)
		}
		if len(msg.Header) > 0 {
			refused(t, msg, 503, bus.Draining)
			draining++
			continue
		}
		ranges, err := bus.ParseReply(msg.Data)
		if err != nil {
			t.Fatal(err)
		}
		checker.Add(ranges...)
		granted++
	}
	t.Logf("%d requests got IDs, %d were refused", granted, draining)
	if _, err := checker.Check(); err != nil || granted == 0 {
		t.Errorf("%d were granted: %v", granted, err)
	}
	if msg, err := sub.NextMsg(time.Millisecond); err == nil {
		t.Errorf("one more answer: %q", msg.Data)
	}
	if status := g.wait(patience); status != 0 {
		t.Errorf("exit status %d", status)
	}
}
