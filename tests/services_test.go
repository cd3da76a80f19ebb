package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// askAll sends a request that many may answer, and returns the first answers.
func askAll[T any](t *testing.T, nc *nats.Conn, subject string, count int) []T {
	t.Helper()
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	defer answers.Unsubscribe()
	if err := nc.PublishRequest(subject, inbox, nil); err != nil {
		t.Fatal(err)
	}
	var found []T
	for range count {
		msg, err := answers.NextMsg(patience)
		if err != nil {
			t.Fatalf("%d of %d answered on %s: %v", len(found), count, subject, err)
		}
		var v T
		if err := json.Unmarshal(msg.Data, &v); err != nil {
			t.Fatalf("%s: %v", msg.Data, err)
		}
		found = append(found, v)
	}
	if msg, err := answers.NextMsg(100 * time.Millisecond); !errors.Is(err, nats.ErrTimeout) {
		t.Errorf("one more answer on %s: %v, %v", subject, msg, err)
	}
	return found
}

// A generator is found as any NATS micro service is.
func TestServices(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order", "--node", "one")
	serve(t, t.TempDir(), "-s", g.url, "--node", "two")
	nc := connect(t, g.url)
	for range 10 {
		granted(t, ask(t, nc, "leaf.segment.order", "100"))
	}
	refused(t, ask(t, nc, "leaf.segment.order", "0"), 400, bus.BadRequest)

	for _, name := range []string{"leaf", "leaf-segment"} {
		ids := make(map[string]bool)
		for _, p := range askAll[micro.Ping](t, nc, "$SRV.PING."+name, 2) {
			if p.Name != name || p.Version == "" || p.Metadata["node"] == "" || ids[p.ID] {
				t.Errorf("PING: %+v", p)
			}
			ids[p.ID] = true
		}
	}
	subjects := make(map[string]string) // their queue groups
	for _, name := range []string{"leaf", "leaf-segment"} {
		for _, i := range askAll[micro.Info](t, nc, "$SRV.INFO."+name, 2) {
			if i.Description == "" {
				t.Errorf("%s has no description", name)
			}
			for _, e := range i.Endpoints {
				subjects[e.Subject] = e.QueueGroup
			}
		}
	}
	for _, subject := range []string{"leaf.segment.>", "leaf.admin.tags.list", "leaf.admin.tags.get",
		"leaf.admin.tags.create", "leaf.admin.tags.update", "leaf.admin.tags.delete"} {
		if group, ok := subjects[subject]; !ok || group != "leaf" {
			t.Errorf("INFO has %s in queue group %q (%v)", subject, group, ok)
		}
	}
	if group, ok := subjects["leaf.admin.buffers"]; !ok || group != "" {
		t.Errorf("INFO has leaf.admin.buffers in queue group %q (%v): all should answer it", group, ok)
	}

	var ids, requests, errors int64
	for _, s := range askAll[micro.Stats](t, nc, "$SRV.STATS.leaf", 2) {
		var with []string
		for _, e := range s.Endpoints {
			if len(e.Data) == 0 || string(e.Data) == "null" {
				continue
			}
			with = append(with, e.Name)
			var state bus.State
			if err := json.Unmarshal(e.Data, &state); err != nil {
				t.Fatal(err)
			}
			if state.Node != s.Metadata["node"] || !state.Ready || state.Clock.UnixMS == 0 || state.Version == "" {
				t.Errorf("state %s", e.Data)
			}
			ids += state.Counts.IDs
			requests += state.Counts.Requests
			for _, n := range state.Counts.Errors {
				errors += n
			}
		}
		if len(with) != 1 {
			t.Errorf("endpoints %v have data, want one", with)
		}
	}
	if ids != 1000 || requests != 10 || errors != 1 {
		t.Errorf("the generators count %d IDs in %d requests and %d errors, want 1000, 10 and 1", ids, requests, errors)
	}
	for _, s := range askAll[micro.Stats](t, nc, "$SRV.STATS.leaf-segment", 2) {
		for _, e := range s.Endpoints {
			if len(e.Data) > 0 && string(e.Data) != "null" {
				t.Errorf("leaf-segment has data: %s", e.Data)
			}
		}
	}
}

// lostNode is the longest that the state says of a lost generator.
var lostNode = fmt.Sprintf(`{"node":%q,"last_heard_ms":1795263927173,"silent_ms":86400000,"until_ms":1795350327173},`, strings.Repeat("n", 64))

// The state has the 20 busiest tags, and is under 16 KiB with the longest.
func TestStateIsBounded(t *testing.T) {
	t.Parallel()
	const tags = 30
	g := embed(t)
	nc := connect(t, g.url)
	name := func(i int) string { return strings.Repeat("a", 126) + fmt.Sprintf("%02d", i) }
	for i := range tags {
		granted(t, ask(t, nc, bus.SubjectTagsCreate, fmt.Sprintf(`{"tag":%q,"max_id":"1000000000000000000","step":50}`, name(i))))
		granted(t, ask(t, nc, "leaf.segment."+name(i), fmt.Sprint(10+i))) // 20 % and more: two segments each
	}
	breakStore(t, jetStream(t, nc), true)
	for i := range tags { // their long errors are not in it
		if err := nc.PublishRequest("leaf.segment."+name(i), nc.NewInbox(), []byte("500")); err != nil {
			t.Fatal(err)
		}
	}
	c := bus.NewClient(nc)
	testkit.Eventually(t, "all to fail, and to refuse", func() bool {
		s := states(t, c, 1)[0]
		return s.Counts.Failing == tags && len(s.Refused) == 5 && len(s.Ending) == 10
	})
	for _, s := range askAll[micro.Stats](t, nc, "$SRV.STATS.leaf", 1) {
		for _, e := range s.Endpoints {
			if most := 16<<10 - 20*len(lostNode); len(e.Data) >= most { // the most that lost generators need
				t.Errorf("the state has %d bytes, more than %d", len(e.Data), most)
			}
			if e.Name != "buffers" {
				continue
			}
			var state bus.State
			if err := json.Unmarshal(e.Data, &state); err != nil {
				t.Fatal(err)
			}
			if len(state.Busiest) != 20 || state.Busiest[0].Tag != name(tags-1) || state.Counts.Tags != tags {
				t.Errorf("of %d tags it lists %d, %s first", state.Counts.Tags, len(state.Busiest), state.Busiest[0].Tag)
			}
		}
	}
}

// Every generator tells what it holds, in pages.
func TestBuffers(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "order:100", "--tag", "shop.a", "--tag", "shop.b", "--node", "one")
	serve(t, t.TempDir(), "-s", g.url, "--node", "two")
	nc := connect(t, g.url)
	took := make(map[string]int64)
	for took["one"] == 0 || took["two"] == 0 {
		granted(t, ask(t, nc, "leaf.segment.order", "5"))
		for node, b := range askBuffers(t, nc, "order", 2) {
			took[node] = b.Taken
		}
	}
	for node, b := range buffersOf(t, nc, "order", 2) {
		if b.State != "ok" && b.State != "loading" || b.Step < 100 || len(b.Segments) == 0 || b.Refilled.IsZero() {
			t.Errorf("%s: %+v", node, b)
			continue
		}
		var left int64
		for _, s := range b.Segments {
			left += int64(s.Last-s.Next) + 1
		}
		if left != b.Left || b.Left == 0 {
			t.Errorf("%s has %d IDs left in segments %+v", node, b.Left, b.Segments)
		}
	}

	for !slices.ContainsFunc(askAll[bus.BuffersPage](t, nc, bus.SubjectBuffers, 2), func(p bus.BuffersPage) bool { return len(p.Buffers) == 3 }) {
		granted(t, ask(t, nc, "leaf.segment.shop.a", ""))
		granted(t, ask(t, nc, "leaf.segment.shop.b", ""))
	}
	for body, want := range map[string]string{
		`{"prefix":"shop."}`:                  "shop.a shop.b",
		`{"prefix":"shop.","limit":1}`:        "shop.a, next shop.a",
		`{"prefix":"shop.","after":"shop.a"}`: "shop.b",
		`{"after":"zzz"}`:                     "",
		`{"contains":"r"}`:                    "order",
		`{"contains":"p.","limit":1}`:         "shop.a, next shop.a",
		``:                                    "order shop.a shop.b",
	} {
		var all []string
		inbox := nc.NewInbox()
		answers, err := nc.SubscribeSync(inbox)
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.PublishRequest(bus.SubjectBuffers, inbox, []byte(body)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			msg, err := answers.NextMsg(patience)
			if err != nil {
				t.Fatal(err)
			}
			page := reply[bus.BuffersPage](t, msg)
			var tags []string
			for _, b := range page.Buffers {
				tags = append(tags, b.Tag)
			}
			text := strings.Join(tags, " ")
			if page.Next != "" {
				text += ", next " + page.Next
			}
			all = append(all, text)
		}
		if !slices.Contains(all, want) {
			t.Errorf("%s is answered with %q, want %q among them", body, all, want)
		}
	}
	refused(t, ask(t, nc, bus.SubjectBuffers, `{"limit":1001}`), 400, bus.BadRequest)
	refused(t, ask(t, nc, bus.SubjectBuffers, `{"tag":"order"}`), 400, bus.BadRequest)
}

// The events are CloudEvents 1.0 in binary mode, on the documented subjects.
func TestEvents(t *testing.T) {
	t.Parallel()
	g := embed(t, "--tag", "started")
	nc := connect(t, g.url)
	js := jetStream(t, nc)
	granted(t, ask(t, nc, bus.SubjectTagsCreate, `{"tag":"shop.order","step":100,"description":"<d>"}`))
	granted(t, ask(t, nc, "leaf.segment.shop.order", "1"))   // demand
	granted(t, ask(t, nc, "leaf.segment.shop.order", "20"))  // prefetch
	granted(t, ask(t, nc, "leaf.segment.shop.order", "900")) // batch
	granted(t, ask(t, nc, bus.SubjectTagsUpdate, `{"tag":"shop.order","max_id":"5000"}`))
	granted(t, ask(t, nc, bus.SubjectTagsDelete, `{"tag":"shop.order"}`))

	type tagBody struct {
		Node string `json:"node"`
		tagRecord
	}
	created := parse[tagBody](t, event(t, js, g.node, "leaf.events.info.tag.created.shop.order", 1).Data())
	if created.Node != g.node || created.MaxID != "1" || created.Step != 100 || created.Description != "<d>" {
		t.Errorf("created: %+v", created)
	}
	updated := parse[tagBody](t, event(t, js, g.node, "leaf.events.info.tag.updated.shop.order", 1).Data())
	if updated.Node != g.node || updated.Tag != "shop.order" || updated.MaxID != "5000" {
		t.Errorf("updated: %+v", updated)
	}
	deleted := parse[tagBody](t, event(t, js, g.node, "leaf.events.info.tag.deleted.shop.order", 1).Data())
	var end int64
	if fmt.Sscan(deleted.MaxID, &end); deleted.Tag != "shop.order" || end < 5000 {
		t.Errorf("deleted: %+v", deleted)
	}
	if e := parse[tagBody](t, event(t, js, g.node, "leaf.events.info.tag.created.started", 1).Data()); e.Tag != "started" {
		t.Errorf("created by --tag: %+v", e)
	}
	started := parse[nodeEvent](t, event(t, js, g.node, "leaf.events.info.node.started."+g.node, 1).Data())
	if started.Node != g.node || started.Version == "" || started.Address != g.url || !strings.Contains(started.Config["tag"], "started") {
		t.Errorf("started: %+v", started)
	}

	type refill struct {
		Node, Tag, First, Last, Cause string
		Step                          int64
		ElapsedMS                     float64 `json:"elapsed_ms"`
	}
	next := "1"
	for i, cause := range []string{"demand", "prefetch", "batch"} {
		r := parse[refill](t, event(t, js, g.node, "leaf.events.info.segment.refill.shop.order", i+1).Data())
		if r.Node != g.node || r.Tag != "shop.order" || r.Cause != cause || r.Step < 100 || r.ElapsedMS <= 0 || r.First != next {
			t.Errorf("refill %d: %+v; want cause %s and first %s", i, r, cause, next)
		}
		var last int64
		fmt.Sscan(r.Last, &last)
		next = fmt.Sprint(last + 1)
	}

	stream, err := js.Stream(t.Context(), "LEAF_EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	if c := stream.CachedInfo().Config; len(c.Subjects) != 1 || c.Subjects[0] != "leaf.events.>" || c.Storage != jetstream.FileStorage ||
		c.MaxAge != 30*24*time.Hour || c.MaxBytes != 256<<20 {
		t.Errorf("the stream is %+v", c)
	}
	g.stop()

	// What an operator has changed of the stream stays.
	g = g.again(t)
	nc = connect(t, g.url)
	js = jetStream(t, nc)
	event(t, js, g.node, "leaf.events.info.node.stopped."+g.node, 1)
	cfg := stream.CachedInfo().Config
	cfg.MaxAge, cfg.Description = time.Hour, "mine"
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	g.stop()
	g = g.again(t)
	js = jetStream(t, connect(t, g.url))
	event(t, js, g.node, "leaf.events.info.node.started."+g.node, 3)
	if stream, err = js.Stream(t.Context(), "LEAF_EVENTS"); err != nil {
		t.Fatal(err)
	}
	if c := stream.CachedInfo().Config; c.MaxAge != time.Hour || c.Description != "mine" {
		t.Errorf("the stream was changed to %+v", c)
	}
}

// event waits for the event number n on a subject and checks its headers.
func event(t *testing.T, js jetstream.JetStream, node, subject string, n int) jetstream.Msg {
	t.Helper()
	consumer := eventConsumer(t, js, subject)
	var msg jetstream.Msg
	for i := range n {
		var err error
		if msg, err = consumer.Next(jetstream.FetchMaxWait(patience)); err != nil {
			t.Fatalf("event %d on %s: %v", i+1, subject, err)
		}
	}
	tokens := strings.SplitN(subject, ".", 6)
	header := func(name string) string {
		values := msg.Headers()[name] // by its exact name, as other languages have it
		if len(values) != 1 {
			t.Errorf("%s has the header %s %d times", subject, name, len(values))
			return ""
		}
		return values[0]
	}
	for name, want := range map[string]string{
		"ce-specversion":     "1.0",
		"ce-source":          "/leaf/" + node,
		"ce-type":            "leaf." + tokens[3] + "." + tokens[4],
		"ce-subject":         tokens[5],
		"ce-datacontenttype": "application/json",
		"ce-id":              header("Nats-Msg-Id"),
	} {
		if got := header(name); got != want || got == "" {
			t.Errorf("%s has %s %q, want %q", subject, name, got, want)
		}
	}
	if at, err := time.Parse(time.RFC3339, header("ce-time")); err != nil || time.Since(at) > 10*time.Minute {
		t.Errorf("%s has ce-time %q", subject, header("ce-time"))
	}
	return msg
}
