package generator_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

const subjectReserved = "leaf.internal.reserved"

// thousands is a store with the tag order, of which one ID is too little for a refill ahead.
func thousands(t *testing.T) *allocatortest.Memory {
	t.Helper()
	store := memory(t)
	if _, err := store.Create(t.Context(), allocator.Tag{Name: "order", MaxID: 1, Step: 1000}); err != nil {
		t.Fatal(err)
	}
	return store
}

// listening is a generator of the installation "own" that holds the IDs 1 to 1000 of order, and what it reported.
type listening struct {
	*running
	nc     *nats.Conn
	marks  *allocator.Marks
	log    *lines
	own    *nats.Msg // the report of its range
	alerts func() []bus.Event
}

func newListening(t *testing.T, s *embedded.Server) *listening {
	t.Helper()
	l := &listening{nc: natskit.Connect(t, s), marks: allocator.NewMarks(), log: new(lines)}
	reports, err := l.nc.SubscribeSync(subjectReserved)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	l.running = start(t, s, "n", thousands(t), func(c *generator.Config) {
		c.Marks, c.StoreKind, c.Log = l.marks, "kv", slog.New(slog.NewTextHandler(l.log, nil))
		c.Join = func(context.Context, func(context.Context) error) (generator.Identity, error) {
			return generator.Identity{Installation: "own"}, nil
		}
	})
	if ranges, err := l.Take(t.Context(), "order", 1); err != nil || ranges[0].First != 1 {
		t.Fatal(ranges, err)
	}
	if l.own, err = reports.NextMsg(testkit.Patience); err != nil {
		t.Fatal(err)
	}
	if err := reports.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	stream := events(t, l.nc)
	l.alerts = func() []bus.Event { return stream("leaf.segment.regressed") }
	return l
}

// hear sends a message about a range, and returns when the generator has heard it.
func (l *listening) hear(t *testing.T, body string) {
	t.Helper()
	end := l.marks.End("last") + 1
	for _, b := range []string{body, `{"tag":"last","end":"` + fmt.Sprint(end) + `"}`} {
		if err := l.nc.Publish(subjectReserved, []byte(b)); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, "it has heard "+body, func() bool { return l.marks.End("last") == end })
}

// A generator reports each range with what shows where it comes from.
func TestReservedIsReported(t *testing.T) {
	t.Parallel()
	l := newListening(t, natskit.Start(t))
	body := string(l.own.Data)
	if !strings.HasPrefix(body, `{"tag":"order","first":"1","end":"1001","run":"`) || !strings.HasSuffix(body, `","installation":"own"}`) {
		t.Errorf("its report is %s", body)
	}
}

// What is no report of another generator of this installation changes nothing: the generator goes on with
// what it holds, and knows no more than before.
func TestReservedIsIgnored(t *testing.T) {
	t.Parallel()
	l := newListening(t, natskit.Start(t))
	warnings := 0
	for _, c := range []struct {
		body    string
		damaged bool
	}{
		{string(l.own.Data), false}, // its own, or one that NATS delivers again
		{`{"tag":"order","first":"1","end":"9000","run":"x","installation":"another"}`, false},
		{`{"tag":"order","end":"9000","installation":"another"}`, false},
		{"", true},
		{"{", true},
		{"null", true},
		{"[]", true},
		{`{"tag":"","first":"1","end":"9000"}`, true},
		{`{"tag":"or der","first":"1","end":"9000"}`, true},
		{`{"tag":"order","first":1,"end":9000}`, true},
		{`{"tag":"order","first":"x","end":"9000"}`, true},
		{`{"tag":"order","first":"1","end":"9223372036854775808"}`, true},
		{`{"tag":"order","first":"-1","end":"9000"}`, true},
		{`{"tag":"order","first":"9000","end":"9000"}`, true},
		{`{"tag":"order","first":"5"}`, true},
		{`{"tag":"order","end":"0"}`, true},
		{`{"tag":"order","end":"-5"}`, true},
	} {
		l.hear(t, c.body)
		if c.damaged {
			warnings++
		}
		if end := l.marks.End("order"); end != 1001 {
			t.Fatalf("after %s it takes the IDs below %d as used", c.body, end)
		}
		if n := l.log.count("a message about a reserved range cannot be read"); n != warnings {
			t.Errorf("after %s there are %d warnings, want %d", c.body, n, warnings)
			warnings = n
		}
	}
	if ranges, err := l.Take(t.Context(), "order", 999); err != nil || ranges[0].First != 2 || ranges[0].Last != 1000 {
		t.Errorf("of 2 to 1000 it hands out %v, %v", ranges, err)
	}
	if n := len(l.alerts()); n > 0 {
		t.Errorf("%d alerts", n)
	}
}

// A range of another generator is used from then on. The store is moved up to it, with an alert. Only a
// report that says where its range begins shows that two generators hold the same IDs.
func TestReservedByAnother(t *testing.T) {
	t.Parallel()
	for body, held := range map[string]bool{
		`{"tag":"order","end":"5001"}`:                                                        true, // an older version
		`{"tag":"order","first":"1001","end":"5001","run":"x"}`:                               true, // it has not joined yet
		`{"tag":"order","first":"1001","end":"5001","run":"x","installation":"own"}`:          true,
		`{"tag":"order","first":"1000","end":"5001","run":"x","installation":"own"}`:          false,
		`{"tag":"order","first":"1","end":"5001","run":"x","installation":"own"}`:             false,
		`{"tag":"order","first":"1","end":"5001","run":"x","installation":"own","later":[1]}`: false, // a newer version
	} {
		t.Run(body, func(t *testing.T) {
			t.Parallel()
			l := newListening(t, natskit.Start(t))
			l.hear(t, body)
			next, err := l.Take(t.Context(), "order", 1)
			if want := map[bool]int64{true: 2, false: 5001}[held]; err != nil || next[0].First != want {
				t.Errorf("next is %v, %v; want %d", next, err, want)
			}
			more, err := l.Take(t.Context(), "order", 2000)
			if err != nil || more[len(more)-1].First < 5001 || !held && more[0].First < 5001 {
				t.Errorf("then it takes %v, %v", more, err)
			}
			testkit.Eventually(t, "the alert", func() bool { return len(l.alerts()) > 0 })
			want := `{"node":"n","tag":"order","store":"kv","got":"1001","seen":"5001","action":"advanced"}`
			if !held {
				want = `"action":"refused",`
			}
			if got := string(l.alerts()[0].Data); !strings.Contains(got, want) {
				t.Errorf("the alert is %s, want %s", got, want)
			}
		})
	}
}

// Two generators that hold the same range, because the store forgot it between them, both drop the rest
// of it as soon as they hear of each other, and name it in an alert.
func TestReservedTwice(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	marks := make(map[string]*allocator.Marks)
	store := thousands(t)
	before := store.Snapshot()
	late := &delayed{store, make(chan struct{}), make(chan struct{}, 1)}
	g := make(map[string]*running)
	run := func(node string, store allocator.Store) {
		marks[node] = allocator.NewMarks()
		g[node] = start(t, s, node, store, func(c *generator.Config) {
			c.Marks, c.StoreKind, c.MaxWait = marks[node], "kv", testkit.Patience
		})
	}
	run("late", late)
	run("early", store)
	published := events(t, nc)

	first := make(chan []bus.Range, 1)
	go func() {
		ranges, err := g["late"].Take(t.Context(), "order", 1)
		if err != nil {
			t.Error(err)
		}
		first <- ranges
	}()
	<-late.waiting
	store.Restore(before)
	if ranges, err := g["early"].Take(t.Context(), "order", 1); err != nil || ranges[0].First != 1 {
		t.Fatal(ranges, err)
	}
	testkit.Eventually(t, "the late one has heard of the range", func() bool { return marks["late"].End("order") == 1001 })
	close(late.gate)
	<-first
	testkit.Eventually(t, "both raise an alert", func() bool { return len(published("leaf.segment.regressed")) >= 2 })
	nodes := make(map[string]bool)
	for _, e := range published("leaf.segment.regressed") {
		body := e.Body.(bus.RegressedEvent)
		nodes[body.Node] = true
		body.Node = ""
		want := bus.RegressedEvent{Tag: "order", Store: "kv", Got: 1, Seen: 1001, Action: allocator.Refused, First: 1, Last: 1000}
		if body != want {
			t.Errorf("the alert is %+v, want %+v", body, want)
		}
	}
	if len(nodes) != 2 {
		t.Errorf("alerts of %v", nodes)
	}
	var c allocatortest.Checker
	for range 50 {
		for node := range g {
			ranges, err := g[node].Take(t.Context(), "order", 1)
			if err != nil || ranges[0].First < 1001 {
				t.Fatalf("%s goes on with %v, %v", node, ranges, err)
			}
			c.Add(ranges...)
		}
	}
	if _, err := c.Check(); err != nil {
		t.Error(err)
	}
}

// foreign is a store in which other programs reserve too: it is not moved up when it went backwards.
type foreign struct{ allocator.Store }

func (s foreign) Reserve(ctx context.Context, tag string, n, from int64) (allocator.Grant, error) {
	if t, err := s.Get(ctx, tag); err != nil || t.MaxID < from {
		return allocator.Grant{}, errors.Join(err, &allocator.RegressedError{Tag: tag, Got: t.MaxID, Seen: from})
	}
	return s.Store.Reserve(ctx, tag, n, from)
}

// The peers hear at once what a generator reserves. So one whose store went backwards, as a stale replica
// does, moves it up. It refuses where other programs reserve too, until an operator has moved max_id.
func TestStoreWentBackwards(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		action allocator.Action
		stale  allocator.Store
		doubt  bus.Range
	}{
		{allocator.Advanced, thousands(t), bus.Range{}},
		{allocator.Refused, foreign{thousands(t)}, bus.Range{First: 1, Last: 1000}},
	} {
		t.Run(string(c.action), func(t *testing.T) {
			t.Parallel()
			s := natskit.Start(t)
			marks := allocator.NewMarks()
			first := start(t, s, "first", thousands(t), nil)
			stale := start(t, s, "stale", c.stale, func(cfg *generator.Config) { cfg.Marks, cfg.StoreKind = marks, "mysql" })
			stream := events(t, stale.conn)
			if _, err := first.Take(t.Context(), "order", 1); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, "the peer has heard of it", func() bool { return marks.End("order") == 1001 })
			ranges, err := stale.Take(t.Context(), "order", 1)
			if c.action == allocator.Advanced && (err != nil || ranges[0].First != 1001) {
				t.Errorf("it hands out %v, %v", ranges, err)
			}
			if c.action == allocator.Refused && !errors.Is(err, bus.StoreRegressed) {
				t.Errorf("it hands out %v, %v", ranges, err)
			}
			testkit.Eventually(t, "the alert", func() bool { return len(stream("leaf.segment.regressed")) == 1 })
			want := bus.RegressedEvent{Node: "stale", Tag: "order", Store: "mysql", Got: 1, Seen: 1001,
				Action: c.action, First: c.doubt.First, Last: c.doubt.Last}
			if got := stream("leaf.segment.regressed")[0].Body; got != want {
				t.Errorf("the alert is %+v, want %+v", got, want)
			}
			if c.action == allocator.Refused {
				if err := first.stop(); err != nil { // so that the operator's command reaches this store
					t.Fatal(err)
				}
				to := bus.ID(1001)
				if _, err := bus.NewClient(natskit.Connect(t, s)).UpdateTag(t.Context(), bus.TagUpdate{Tag: "order", MaxID: &to}); err != nil {
					t.Fatal(err)
				}
				if ranges, err := stale.Take(t.Context(), "order", 1); err != nil || ranges[0].First != 1001 {
					t.Errorf("then it hands out %v, %v", ranges, err)
				}
			}
			testkit.Eventually(t, "the end of the alert", func() bool {
				for _, e := range stream("leaf.segment.recovered") {
					if e.Body == (bus.RecoveredEvent{Node: "stale", Tag: "order", Episode: "regressed"}) {
						return true
					}
				}
				return false
			})
			if n := len(stream("leaf.segment.regressed")); n != 1 {
				t.Errorf("%d alerts", n)
			}
		})
	}
}
