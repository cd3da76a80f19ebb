package tests

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// These tests know nothing of the code but its names of subjects: they see a
// generator as a program in any language does, over plain NATS.

// rangesReply is a JSON reply with IDs.
type rangesReply struct {
	Count  int64
	Ranges []struct{ First, Last string }
}

func TestRequestsForIDs(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order", "--tag", "shop.v1/a=b-c_d:7")
	nc := connect(t, g.url)
	next := int64(1)
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
		{body: "5000", count: 5000}, // more than a step
		{body: "1000000", count: 1_000_000},
		{body: `{}`, count: 1, json: true},
		{body: ` { } `, count: 1, json: true},
		{body: `{"count":1}`, count: 1, json: true},
		{body: "{\n\"count\": 100\n}\n", count: 100, json: true},
		{body: `{"count":1000000}`, count: 1_000_000, json: true},
	} {
		msg := ask(t, nc, "leaf.segment.order", c.body)
		granted(t, msg)
		// One generator hands out the IDs of a tag in their order, without a gap
		// while nothing fails: so the reply is known to the letter.
		first, last := next, next+c.count-1
		next = last + 1
		want := fmt.Sprintf("%d-%d", first, last)
		switch {
		case c.json:
			want = fmt.Sprintf(`{"count":%d,"ranges":[{"first":"%d","last":"%d"}]}`, c.count, first, last)
		case c.count == 1:
			want = fmt.Sprint(first)
		}
		if got := string(msg.Data); got != want {
			t.Errorf("%q is answered with %q, want %q", c.body, got, want)
		}
	}
	// Tags are apart from each other.
	if got := string(ask(t, nc, "leaf.segment.shop.v1/a=b-c_d", "3").Data); got != "1-3" {
		t.Errorf("another tag begins with %q", got)
	}
}

// IDs that are not consecutive come as several ranges, one a line.
func TestReplyOfSeveralRanges(t *testing.T) {
	t.Parallel()
	// Of two generators that share a tag each has segments that do not touch.
	g := embed(t, "--tag", "order:10", "--max-step", "10")
	serve(t, t.TempDir(), "-s", g.url, "--max-step", "10")
	nc := connect(t, g.url)
	// Less than a step, so that each loads the next segment ahead.
	lines := regexp.MustCompile(`^[1-9][0-9]*(-[1-9][0-9]*)?(\n[1-9][0-9]*(-[1-9][0-9]*)?)+$`)
	var text, inJSON bool
	testkit.Eventually(t, "replies of several ranges", func() bool {
		msg := ask(t, nc, "leaf.segment.order", "7")
		granted(t, msg)
		ranges, err := bus.ParseReply(msg.Data)
		if err != nil {
			t.Fatal(err)
		}
		var ids int64
		for i, r := range ranges {
			ids += r.Len()
			if i > 0 && r.First <= ranges[i-1].Last+1 {
				t.Fatalf("%q is not the fewest ranges in their order", msg.Data)
			}
		}
		if ids != 7 {
			t.Fatalf("%q are %d IDs, want 7", msg.Data, ids)
		}
		text = text || len(ranges) > 1 && lines.Match(msg.Data)

		r := reply[rangesReply](t, ask(t, nc, "leaf.segment.order", `{"count":7}`))
		ids = 0
		for _, each := range r.Ranges {
			first, err1 := strconv.ParseInt(each.First, 10, 64)
			last, err2 := strconv.ParseInt(each.Last, 10, 64)
			if err1 != nil || err2 != nil || last < first {
				t.Fatalf("range %+v", each)
			}
			ids += last - first + 1
		}
		if r.Count != 7 || ids != 7 {
			t.Fatalf("%+v are %d IDs, want 7", r, ids)
		}
		inJSON = inJSON || len(r.Ranges) > 1
		return text && inJSON
	})
}

// Each bad request gets the contract's error, and takes no ID.
func TestBadRequestsForIDs(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order", "--tag", "deleted")
	nc := connect(t, g.url, nats.SkipSubjectValidation())
	before, err := strconv.Atoi(string(ask(t, nc, "leaf.segment.order", "").Data))
	if err != nil {
		t.Fatal(err)
	}
	granted(t, ask(t, nc, bus.SubjectTagsDelete, `{"tag":"deleted"}`))
	type record struct {
		Tag, Description string
		MaxID            string `json:"max_id"`
		Step             int64
		Updated          time.Time
	}
	read := func() record { return reply[record](t, ask(t, nc, bus.SubjectTagsGet, `{"tag":"order"}`)) }
	kept := read()
	if kept.MaxID != "1001" {
		t.Errorf("after one ID the record is %+v", kept)
	}

	const order = "leaf.segment.order"
	for _, c := range []struct {
		name, subject, body string
		code                int
		reason              bus.Reason
	}{
		{"zero", order, "0", 400, bus.BadRequest},
		{"negative", order, "-1", 400, bus.BadRequest},
		{"fraction", order, "1.5", 400, bus.BadRequest},
		{"exponent", order, "1e9", 400, bus.BadRequest},
		{"plus", order, "+5", 400, bus.BadRequest},
		{"leading zero", order, "05", 400, bus.BadRequest},
		{"two numbers", order, "5 5", 400, bus.BadRequest},
		{"hexadecimal", order, "0x10", 400, bus.BadRequest},
		{"underscore", order, "1_000", 400, bus.BadRequest},
		{"other digits", order, "٣", 400, bus.BadRequest},
		{"text", order, "many", 400, bus.BadRequest},
		{"NUL", order, "\x00", 400, bus.BadRequest},
		{"not UTF-8", order, "\xff\xfe", 400, bus.BadRequest},
		{"HTML", order, "<b>&", 400, bus.BadRequest},
		{"a line's end in the middle", order, "5\n5", 400, bus.BadRequest},
		{"just above the most", order, "1000001", 413, bus.BatchTooLarge},
		{"billion", order, "1000000000", 413, bus.BatchTooLarge},
		{"largest int64", order, "9223372036854775807", 413, bus.BatchTooLarge},
		{"20 digits", order, "12345678901234567890", 413, bus.BatchTooLarge},
		{"huge body", order, strings.Repeat("1", 1_000_000), 400, bus.BadRequest},
		{"huge white space", order, strings.Repeat(" ", 1_000_000), 400, bus.BadRequest},
		{"JSON zero", order, `{"count":0}`, 400, bus.BadRequest},
		{"JSON negative", order, `{"count":-1}`, 400, bus.BadRequest},
		{"JSON fraction", order, `{"count":1.5}`, 400, bus.BadRequest},
		{"JSON whole fraction", order, `{"count":1.0}`, 400, bus.BadRequest},
		{"JSON exponent", order, `{"count":1e2}`, 400, bus.BadRequest},
		{"JSON text", order, `{"count":"5"}`, 400, bus.BadRequest},
		{"JSON null", order, `{"count":null}`, 400, bus.BadRequest},
		{"JSON list", order, `{"count":[1]}`, 400, bus.BadRequest},
		{"JSON too many", order, `{"count":1000001}`, 413, bus.BatchTooLarge},
		{"JSON 20 digits", order, `{"count":12345678901234567890}`, 413, bus.BatchTooLarge},
		{"JSON unknown field", order, `{"count":5,"tag":"x"}`, 400, bus.BadRequest},
		{"JSON in other case", order, `{"Count":5}`, 400, bus.BadRequest},
		{"JSON cut off", order, `{"count":5`, 400, bus.BadRequest},
		{"JSON and more", order, `{"count":5}{}`, 400, bus.BadRequest},
		{"array", order, `[5]`, 400, bus.BadRequest},
		{"null", order, `null`, 400, bus.BadRequest},
		{"string", order, `"5"`, 400, bus.BadRequest},

		{"no tag", "leaf.segment", "", 400, bus.BadTag},
		{"a wildcard for the tag", "leaf.segment.*", "", 400, bus.BadTag},
		{"a full wildcard", "leaf.segment.>", "", 400, bus.BadTag},
		{"a wildcard in the tag", "leaf.segment.a.*.b", "", 400, bus.BadTag},
		{"an asterisk in the tag", "leaf.segment.a*b", "", 400, bus.BadTag},
		{"not ASCII", "leaf.segment.bücher", "", 400, bus.BadTag},
		{"not UTF-8 in the tag", "leaf.segment.\xff", "", 400, bus.BadTag},
		{"NUL in the tag", "leaf.segment.order\x00", "", 400, bus.BadTag},
		{"illegal character", "leaf.segment.order$", "", 400, bus.BadTag},
		{"colon", "leaf.segment.order:1", "", 400, bus.BadTag},
		{"129 characters", "leaf.segment." + strings.Repeat("a", 129), "", 400, bus.BadTag},
		{"128 characters", "leaf.segment." + strings.Repeat("a", 128), "", 404, bus.UnknownTag},
		{"a path", "leaf.segment./etc/passwd", "", 404, bus.UnknownTag},
		{"unknown tag", "leaf.segment.nobody", "", 404, bus.UnknownTag},
		{"another case", "leaf.segment.Order", "", 404, bus.UnknownTag},
		{"a longer tag", "leaf.segment.order.x", "", 404, bus.UnknownTag},
		{"deleted tag", "leaf.segment.deleted", "", 404, bus.UnknownTag},
		{"unknown tag and count", "leaf.segment.nobody", "1000001", 413, bus.BatchTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			msg := ask(t, nc, c.subject, c.body)
			refused(t, msg, c.code, c.reason)
			if len(msg.Data) > 1000 {
				t.Errorf("the answer has %d bytes", len(msg.Data))
			}
		})
	}

	if got := read(); got != kept {
		t.Errorf("the record was %+v and is %+v", kept, got)
	}
	if got := string(ask(t, nc, order, "").Data); got != strconv.Itoa(before+1) {
		t.Errorf("ID %s follows %d", got, before)
	}
}

// A request without a reply subject takes no ID: nobody would get it.
func TestRequestWithoutReply(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order")
	nc := connect(t, g.url)
	for _, body := range []string{"", "500", `{"count":500}`, "bad"} {
		if err := nc.Publish("leaf.segment.order", []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Publish(bus.SubjectTagsUpdate, []byte(`{"tag":"order","max_id":"5000"}`)); err != nil {
		t.Fatal(err)
	}
	// They came on the same subscription, and so before this one.
	if got := string(ask(t, nc, "leaf.segment.order", "").Data); got != "1" {
		t.Errorf("the first ID is %q", got)
	}
}

// Bytes that no client library sends must not hurt: the server passes them on.
func TestRawProtocol(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order")
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "CONNECT {\"verbose\":false,\"headers\":true}\r\n")
	for _, subject := range []string{"leaf.segment.", "leaf.segment..", "leaf.segment.a..b", "leaf.segment.\x01", "leaf.segment.a>b"} {
		fmt.Fprintf(conn, "PUB %s some.reply 1\r\n1\r\n", subject)
	}
	fmt.Fprint(conn, "PING\r\n")
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for got := ""; !strings.Contains(got, "PONG"); {
		buf := make([]byte, 1024)
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, got)
		}
		got += string(buf[:n])
	}
	if got := string(ask(t, connect(t, g.url), "leaf.segment.order", "").Data); got != "1" {
		t.Errorf("the first ID is %q", got)
	}
}

// Near the largest int64 the last IDs are handed out, and then no more: never
// a negative one, never one from the beginning.
func TestExhaustedTag(t *testing.T) {
	t.Parallel()
	g := embed(t)
	nc := connect(t, g.url)
	const last = 9223372036854775807
	granted(t, ask(t, nc, bus.SubjectTagsCreate, fmt.Sprintf(`{"tag":"order","max_id":"%d","step":1000}`, last-25)))
	got := int64(0)
	testkit.Eventually(t, "the end", func() bool {
		msg := ask(t, nc, "leaf.segment.order", "")
		if len(msg.Header) > 0 {
			refused(t, msg, 507, bus.Exhausted)
			return true
		}
		id, err := strconv.ParseInt(string(msg.Data), 10, 64)
		if err != nil || id < last-25 || id <= got {
			t.Fatalf("ID %q after %d", msg.Data, got)
		}
		got = id
		return false
	})
	if got < last-1 {
		t.Errorf("the last ID was %d", got)
	}
	refused(t, ask(t, nc, "leaf.segment.order", ""), 507, bus.Exhausted)

	// All or nothing: never the few that are left.
	granted(t, ask(t, nc, bus.SubjectTagsCreate, fmt.Sprintf(`{"tag":"coupon","max_id":"%d"}`, last-25)))
	refused(t, ask(t, nc, "leaf.segment.coupon", "100"), 507, bus.Exhausted)
}

// No tag but the one that asks waits for a store that is slow; and a generator
// that has too many who wait says so at once.
func TestOverload(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order:10", "--max-step", "10", "--max-waiting", "5", "--max-wait", "1m", "--drain-timeout", "0s")
	nc := connect(t, g.url)
	granted(t, ask(t, nc, bus.SubjectTagsCreate, `{"tag":"coupon","step":10}`))
	granted(t, ask(t, nc, "leaf.segment.coupon", "2"))
	testkit.Eventually(t, "two segments of the tag", func() bool {
		return len(askBuffers(t, nc, "coupon", 1)[g.node].Segments) == 2
	})
	breakStore(t, jetStream(t, nc), true)
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := nc.PublishRequest("leaf.segment.order", inbox, nil); err != nil {
			t.Fatal(err)
		}
	}
	msg := ask(t, nc, "leaf.segment.order", "")
	if e := refusal(t, msg); e.Code != 429 || e.Reason != "overloaded" || e.RetryMS <= 0 {
		t.Errorf("answered %s", msg.Data)
	}
	granted(t, ask(t, nc, "leaf.segment.coupon", "5")) // from memory
	breakStore(t, jetStream(t, nc), false)
	for range 5 {
		msg, err := answers.NextMsg(patience)
		if err != nil {
			t.Fatal(err)
		}
		granted(t, msg)
	}
}
