package tests

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

// tagRecord is a tag's record as the contract has it.
type tagRecord struct {
	Tag         string `json:"tag"`
	MaxID       string `json:"max_id"`
	Step        int64  `json:"step"`
	Description string `json:"description"`
	Updated     string `json:"updated"`
}

// tagPage is the reply of leaf.admin.tags.list.
type tagPage struct {
	Tags []tagRecord
	Next string
}

// adminTest asks one generator to change tags.
type adminTest struct {
	t  *testing.T
	nc *nats.Conn
}

func (a adminTest) ask(what, body string) *nats.Msg {
	a.t.Helper()
	return ask(a.t, a.nc, "leaf.admin.tags."+what, body)
}

// record asks for a record and checks all of it but its time, which must be new.
func (a adminTest) record(what, body string, want tagRecord) {
	a.t.Helper()
	got := reply[tagRecord](a.t, a.ask(what, body))
	at, err := time.Parse(time.RFC3339, got.Updated)
	if age := time.Since(at); err != nil || age < -time.Minute || age > 10*time.Minute {
		a.t.Errorf("%s %s: updated is %q", what, body, got.Updated)
	}
	got.Updated = ""
	if got != want {
		a.t.Errorf("%s %s: got %+v, want %+v", what, body, got, want)
	}
}

func (a adminTest) refused(what, body string, code int, reason bus.Reason) {
	a.t.Helper()
	msg := a.ask(what, body)
	if e := refusal(a.t, msg); e.Code != code || e.Reason != string(reason) {
		a.t.Errorf("%s %s: answered %q, want %d %s", what, body, msg.Data, code, reason)
	}
}

func (a adminTest) id(tag string) string {
	a.t.Helper()
	msg := ask(a.t, a.nc, "leaf.segment."+tag, "")
	granted(a.t, msg)
	return string(msg.Data)
}

func newAdmin(t *testing.T, args ...string) adminTest {
	t.Helper()
	return adminTest{t, connect(t, embed(t, args...).url)}
}

func TestLifeOfATag(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	// Defaults.
	a.record("create", `{"tag":"order"}`, tagRecord{Tag: "order", MaxID: "1", Step: 1000})
	a.refused("create", `{"tag":"order"}`, 409, bus.Exists)
	a.record("get", `{"tag":"order"}`, tagRecord{Tag: "order", MaxID: "1", Step: 1000})
	// A record may be sent as it was received, with its time.
	full := tagRecord{Tag: "shop.orders", MaxID: "7000001", Step: 20, Description: "orders <of> the shop & café"}
	a.record("create", `{"tag":"shop.orders","max_id":"7000001","step":20,"description":"orders <of> the shop & café","updated":"2020-01-01T00:00:00Z"}`, full)
	a.record("get", `{"tag":"shop.orders"}`, full)
	if body := string(a.ask("get", `{"tag":"shop.orders"}`).Data); !strings.Contains(body, "<of> the shop & café") {
		t.Errorf("the record %s has escapes", body)
	}
	if id := a.id("shop.orders"); id != "7000001" {
		t.Errorf("the first ID is %s", id)
	}

	// One field at a time; the others stay.
	if id := a.id("order"); id != "1" {
		t.Errorf("the first ID is %s", id)
	}
	a.record("update", `{"tag":"order","step":50}`, tagRecord{Tag: "order", MaxID: "1001", Step: 50})
	a.record("update", `{"tag":"order","description":"x"}`, tagRecord{Tag: "order", MaxID: "1001", Step: 50, Description: "x"})
	if id := a.id("order"); id != "2" {
		t.Errorf("after a change of step and description, ID %s follows 1", id)
	}
	a.record("update", `{"tag":"order","max_id":"9007199254740993"}`, // beyond what a float holds
		tagRecord{Tag: "order", MaxID: "9007199254740993", Step: 50, Description: "x"})
	if id := a.id("order"); id != "9007199254740993" {
		t.Errorf("after max_id was moved, the next ID is %s", id)
	}
	a.refused("update", `{"tag":"order","max_id":"9007199254740992"}`, 409, bus.Conflict)
	a.refused("update", `{"tag":"order","max_id":"1"}`, 409, bus.Conflict)
	a.record("update", `{"tag":"order","description":""}`, tagRecord{Tag: "order", MaxID: "9007199254741043", Step: 50})

	// Deleted: unknown to all, and then above all that it ever had.
	a.record("delete", `{"tag":"order"}`, tagRecord{Tag: "order", MaxID: "9007199254741043", Step: 50})
	a.refused("get", `{"tag":"order"}`, 404, bus.UnknownTag)
	a.refused("update", `{"tag":"order","step":5}`, 404, bus.UnknownTag)
	a.refused("delete", `{"tag":"order"}`, 404, bus.UnknownTag)
	refused(t, ask(t, a.nc, "leaf.segment.order", ""), 404, bus.UnknownTag)
	a.record("create", `{"tag":"order","max_id":"5"}`, tagRecord{Tag: "order", MaxID: "9007199254741043", Step: 1000})
	if id := a.id("order"); id != "9007199254741043" {
		t.Errorf("after it was created again, the first ID is %s", id)
	}
}

// A tag that was deleted stays so across a restart, whatever --tag says; what
// it had is kept.
func TestDeletedTagAcrossARestart(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order:100")
	a := adminTest{t, connect(t, g.url)}
	a.id("order")
	a.record("delete", `{"tag":"order"}`, tagRecord{Tag: "order", MaxID: "101", Step: 100})
	g.stop()
	g = g.again(t, "--tag", "order:100")
	a = adminTest{t, connect(t, g.url)}
	a.refused("get", `{"tag":"order"}`, 404, bus.UnknownTag)
	a.record("create", `{"tag":"order","step":77}`, tagRecord{Tag: "order", MaxID: "101", Step: 77})
	g.stop()
	g = g.again(t, "--tag", "order:100")
	a = adminTest{t, connect(t, g.url)}
	a.record("get", `{"tag":"order"}`, tagRecord{Tag: "order", MaxID: "101", Step: 77}) // unchanged by --tag
}

func TestBadAdministration(t *testing.T) {
	t.Parallel()
	a := newAdmin(t, "--tag", "order", "--max-step", "5000")
	kept := string(a.ask("get", `{"tag":"order"}`).Data)
	for _, c := range []struct {
		what, body string
		code       int
		reason     bus.Reason
	}{
		{"create", ``, 400, bus.BadTag},
		{"create", `{}`, 400, bus.BadTag},
		{"create", `order`, 400, bus.BadRequest},
		{"create", `["order"]`, 400, bus.BadRequest},
		{"create", `{"tag":`, 400, bus.BadRequest},
		{"create", `{"tag":"new"} {"tag":"newer"}`, 400, bus.BadRequest},
		{"create", `{"tag":5}`, 400, bus.BadRequest},
		{"create", `{"tag":"new","nope":1}`, 400, bus.BadRequest},
		{"create", `{"tag":"new","floor":"5"}`, 400, bus.BadRequest},
		{"create", `{"tag":"new","deleted":true}`, 400, bus.BadRequest},
		{"create", `{"tag":""}`, 400, bus.BadTag},
		{"create", `{"tag":"a b"}`, 400, bus.BadTag},
		{"create", `{"tag":"a\u0000"}`, 400, bus.BadTag},
		{"create", `{"tag":"bücher"}`, 400, bus.BadTag},
		{"create", `{"tag":"*"}`, 400, bus.BadTag},
		{"create", `{"tag":"a.>"}`, 400, bus.BadTag},
		{"create", `{"tag":".a"}`, 400, bus.BadTag},
		{"create", `{"tag":"a..b"}`, 400, bus.BadTag},
		{"create", `{"tag":"a."}`, 400, bus.BadTag},
		{"create", `{"tag":"` + strings.Repeat("a", 129) + `"}`, 400, bus.BadTag},
		{"create", `{"tag":"new","step":0}`, 400, bus.BadRequest},
		{"create", `{"tag":"new","step":-1}`, 400, bus.BadRequest},
		{"create", `{"tag":"new","step":5001}`, 400, bus.BadRequest},
		{"create", `{"tag":"new","step":1.5}`, 400, bus.BadRequest},
		{"create", `{"tag":"new","max_id":"0"}`, 400, bus.BadRequest},
		{"create", `{"tag":"new","max_id":"-5"}`, 400, bus.BadRequest},
		{"create", `{"tag":"new","max_id":"9223372036854775808"}`, 400, bus.BadRequest},
		{"create", `{"tag":"new","max_id":"1e3"}`, 400, bus.BadRequest},
		{"create", `{"tag":"new","max_id":""}`, 400, bus.BadRequest},
		{"create", `{"tag":"new","description":"` + strings.Repeat("x", 257) + `"}`, 400, bus.BadRequest},
		{"create", `{"tag":"new","description":"a\u0000"}`, 400, bus.BadRequest},
		{"create", strings.Repeat(" ", 900_000) + `{"tag":"new","nope":1}`, 400, bus.BadRequest},
		{"update", `{"tag":"order"}`, 400, bus.BadRequest},
		{"update", `{"step":5}`, 400, bus.BadTag},
		{"update", `{"tag":"nobody","step":5}`, 404, bus.UnknownTag},
		{"update", `{"tag":"order","step":0}`, 400, bus.BadRequest},
		{"update", `{"tag":"order","step":-1}`, 400, bus.BadRequest},
		{"update", `{"tag":"order","step":5001}`, 400, bus.BadRequest},
		{"update", `{"tag":"order","step":99999999999999999999}`, 400, bus.BadRequest},
		{"update", `{"tag":"order","max_id":"0"}`, 400, bus.BadRequest},
		{"update", `{"tag":"order","max_id":"9223372036854775808"}`, 400, bus.BadRequest},
		{"update", `{"tag":"order","max_id":"-1"}`, 400, bus.BadRequest},
		{"update", `{"tag":"order","description":"` + strings.Repeat("x", 257) + `"}`, 400, bus.BadRequest},
		{"update", `{"tag":"order","updated":"2020-01-01T00:00:00Z","step":5}`, 400, bus.BadRequest},
		{"get", `{}`, 400, bus.BadTag},
		{"get", `{"tag":"nobody"}`, 404, bus.UnknownTag},
		{"get", `{"tag":"ORDER"}`, 404, bus.UnknownTag},
		{"get", `{"tag":"order","step":1}`, 400, bus.BadRequest},
		{"delete", `{"tag":"nobody"}`, 404, bus.UnknownTag},
		{"delete", `{"tag":"*"}`, 400, bus.BadTag},
		{"delete", `{"tag":"order","force":true}`, 400, bus.BadRequest},
		{"list", `{"limit":1001}`, 400, bus.BadRequest},
		{"list", `{"limit":-1}`, 400, bus.BadRequest},
		{"list", `{"limit":"5"}`, 400, bus.BadRequest},
		{"list", `{"page":2}`, 400, bus.BadRequest},
	} {
		a.refused(c.what, c.body, c.code, c.reason)
	}
	if now := string(a.ask("get", `{"tag":"order"}`).Data); now != kept {
		t.Errorf("the record was %s and is %s", kept, now)
	}
	if page := reply[tagPage](t, a.ask("list", "")); len(page.Tags) != 1 {
		t.Errorf("the tags are now %+v", page.Tags)
	}
	if id := a.id("order"); id != "1" {
		t.Errorf("the first ID is %s", id)
	}
}

func TestPagesOfTags(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	if body := string(a.ask("list", "").Data); !strings.Contains(body, `"tags":[]`) {
		t.Errorf("no tags are listed as %s", body)
	}
	var all []string
	for i := range 25 {
		all = append(all, fmt.Sprintf("shop.t%02d", i))
	}
	for _, tag := range append([]string{"a", "Shop.t00", "z"}, all...) {
		granted(t, a.ask("create", `{"tag":"`+tag+`"}`))
	}
	granted(t, a.ask("delete", `{"tag":"shop.t07"}`)) // a tombstone is not listed
	all = append(all[:7], all[8:]...)

	var listed []string
	after := ""
	for pages := 1; ; pages++ {
		page := reply[tagPage](t, a.ask("list", fmt.Sprintf(`{"prefix":"shop.","after":%q,"limit":10}`, after)))
		for _, tag := range page.Tags {
			listed = append(listed, tag.Tag)
		}
		if after = page.Next; after == "" {
			if pages != 3 {
				t.Errorf("%d pages", pages)
			}
			break
		}
		if len(page.Tags) != 10 || page.Tags[9].Tag != after {
			t.Errorf("page %d has %d tags, and next is %s", pages, len(page.Tags), after)
		}
	}
	if got, want := fmt.Sprint(listed), fmt.Sprint(all); got != want {
		t.Errorf("listed %s, want %s", got, want)
	}
	for body, want := range map[string]int{
		``: 27, `{}`: 27, `{"limit":1000}`: 27, `{"limit":0}`: 27,
		`{"after":"zzz"}`: 0, `{"prefix":"nobody"}`: 0, `{"prefix":"shop.","after":"shop.t24"}`: 0,
		`{"prefix":"Shop"}`: 1, `{"after":"shop.t23"}`: 2, `{"prefix":"*"}`: 0,
		`{"contains":"hop.t1"}`: 10, `{"contains":"t0"}`: 10, `{"prefix":"shop.","contains":"t0","after":"shop.t05"}`: 3, `{"contains":"T0"}`: 0,
	} {
		if page := reply[tagPage](t, a.ask("list", body)); len(page.Tags) != want || page.Next != "" {
			t.Errorf("list %s: %d tags and next %q, want %d", body, len(page.Tags), page.Next, want)
		}
	}
}

// What is kept in KV: other programs, and operators, read it.
func TestRecordsInKV(t *testing.T) {
	t.Parallel()
	g := embed(t)
	a := adminTest{t, connect(t, g.url)}
	granted(t, a.ask("create", `{"tag":"shop.order","description":"d"}`))
	a.id("shop.order")
	js := jetStream(t, a.nc)
	value := func(bucket, key string) []byte {
		kv, err := js.KeyValue(t.Context(), bucket)
		if err != nil {
			t.Fatal(err)
		}
		entry, err := kv.Get(t.Context(), key)
		if err != nil {
			t.Fatalf("%s, %s: %v", bucket, key, err)
		}
		return entry.Value()
	}
	got := parse[struct {
		tagRecord
		Last allocator.Claim
	}](t, value("LEAF_TAGS", "shop.order"))
	if got.Updated == "" {
		t.Error("the record has no time")
	}
	got.Updated = ""
	if want := (tagRecord{Tag: "shop.order", MaxID: "1001", Step: 1000, Description: "d"}); got.tagRecord != want {
		t.Errorf("the record is %+v, want %+v", got, want)
	}
	if l := got.Last; l.First != 1 || l.Last != 1000 || l.Node == "" || l.Time.IsZero() {
		t.Errorf("the record's last claim is %+v", l)
	}
	installation := parse[struct {
		ID, Store, Registry, Created string
		Epoch                        int64
		TimeBits                     int `json:"time_bits"`
		WorkerBits                   int `json:"worker_bits"`
		SequenceBits                 int `json:"sequence_bits"`
		Tags                         bool
	}](t, value("LEAF", "installation"))
	if i := installation; i.ID == "" || i.Store != "kv" || i.Registry != "kv" || i.Epoch != 1288834974657 ||
		i.TimeBits+i.WorkerBits+i.SequenceBits != 63 || !i.Tags {
		t.Errorf("the installation's record is %+v", i)
	}
	for _, name := range []string{"KV_LEAF", "KV_LEAF_TAGS"} {
		stream, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if c := stream.CachedInfo().Config; c.MaxAge != 0 || c.Storage != jetstream.FileStorage || c.AllowMsgTTL {
			t.Errorf("%s could lose records: %+v", name, c)
		}
	}
}
