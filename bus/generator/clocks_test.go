package generator_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// serving returns the nodes that are in the queue group of snowflakes.
func serving(t *testing.T, nc *nats.Conn) (nodes []string) {
	t.Helper()
	const silence = 100 * time.Millisecond
	replies := survey(t, nc, "$SRV.PING.leaf-snowflake")
	for wait := testkit.Patience; ; wait = silence {
		msg, err := replies.NextMsg(wait) // an error: there is none
		if err != nil {
			slices.Sort(nodes)
			return nodes
		}
		var ping micro.Ping
		if err := json.Unmarshal(msg.Data, &ping); err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, ping.Metadata["node"])
	}
}

// survey sends a request to all generators that answer it.
func survey(t *testing.T, nc *nats.Conn, subject string) *nats.Subscription {
	t.Helper()
	replies, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest(subject, replies.Subject, nil); err != nil {
		t.Fatal(err)
	}
	return replies
}

// state returns what one generator says of itself, and how often it was asked
// for its clock.
func state(t *testing.T, nc *nats.Conn, node string) (s admin.State, clockAsked int) {
	t.Helper()
	replies := survey(t, nc, "$SRV.STATS.leaf")
	for s.Node != node {
		msg, err := replies.NextMsg(testkit.Patience)
		if err != nil {
			t.Fatalf("the state of %s: %v", node, err)
		}
		var stats micro.Stats
		if err := json.Unmarshal(msg.Data, &stats); err != nil {
			t.Fatal(err)
		}
		s, clockAsked = admin.State{}, 0
		for _, e := range stats.Endpoints {
			if e.Name == "clock" {
				clockAsked = e.NumRequests
			}
			if len(e.Data) == 0 {
				continue
			}
			if err := json.Unmarshal(e.Data, &s); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s, clockAsked
}

// wantEvent waits for an event about key; all there are must have this body.
func wantEvent(t *testing.T, stream func(string) []events.Event, severity, what, key, body string) {
	t.Helper()
	testkit.Eventually(t, what+" is published about "+key, func() bool {
		return slices.ContainsFunc(stream(what), func(e events.Event) bool { return e.Key == key })
	})
	for _, e := range stream(what) {
		if e.Key == key && (e.Severity != severity || string(e.Data) != body) {
			t.Errorf("%s %s %s %s, want %s %s", e.Severity, what, key, e.Data, severity, body)
		}
	}
}

// wantLost waits for the alert of a lost worker. All IDs that the node issued with it are below the alert's end.
func wantLost(t *testing.T, stream func(string) []events.Event, node string, worker, reserved int64) {
	t.Helper()
	testkit.Eventually(t, "the alert of a lost worker", func() bool { return len(stream("leaf.worker.lost")) == 1 })
	e, ok := stream("leaf.worker.lost")[0].Body.(events.Worker)
	want := events.Worker{Node: node, Worker: worker, Registry: "memory", UntilMS: e.UntilMS, ReservedUntilMS: reserved}
	if !ok || e != want || e.UntilMS < 1 || e.UntilMS > reserved {
		t.Errorf("the alert is %+v, want %+v", stream("leaf.worker.lost")[0].Body, want)
	}
}

// allAnswer waits until each of so many generators has issued a snowflake: only
// then it can notice that its clock went back.
func allAnswer(t *testing.T, nc *nats.Conn, generators int) {
	t.Helper()
	workers := make(map[int64]bool)
	testkit.Eventually(t, "all generators answer", func() bool {
		workers[flake(t, nc).Worker] = true
		return len(workers) == generators
	})
}

func TestClockBackAlone(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	c := newClock()
	start(t, s, "n", memory(t), on(c, snowflaketest.NewMemory()))
	stream := eventsOn(t, nc)
	before := flake(t, nc)
	c.step(-time.Hour)
	for range 20 {
		msg, err := nc.Request("leaf.snowflake", nil, testkit.Patience)
		if err != nil {
			t.Fatal(err)
		}
		var body struct {
			Code    int
			Reason  string
			Message string
			Retry   int64 `json:"retry_after_ms"`
		}
		if err := json.Unmarshal(msg.Data, &body); err != nil {
			t.Fatalf("%s: %v", msg.Data, err)
		}
		if body.Code != 503 || body.Reason != "clock_backwards" || body.Message == "" || body.Retry != time.Hour.Milliseconds() ||
			msg.Header.Get("Nats-Service-Error-Code") != "503" || msg.Header.Get("Nats-Service-Error") != body.Message {
			t.Fatalf("the answer is %v %s", msg.Header, msg.Data)
		}
	}
	if s, _ := state(t, nc, "n"); s.Ready || !slices.Equal(s.Missing, []string{"clock"}) || !strings.Contains(s.Reasons["clock"], "1h0m0s") || s.Clock.UnixMS != c.now() {
		t.Errorf("the state is %+v", s)
	}
	wantEvent(t, stream, "alert", "leaf.clock.backwards", "0", fmt.Sprintf(
		`{"node":"n","worker":0,"offset_ms":3600000,"last_ms":%d,"now_ms":%d,"action":"refused"}`, before.UnixMS, c.now()))

	c.step(time.Hour)
	if after := flake(t, nc); after.UnixMS != before.UnixMS || after.Sequence <= before.Sequence {
		t.Errorf("after the clock came back: %+v, before it went: %+v", after, before)
	}
	wantEvent(t, stream, "info", "leaf.clock.recovered", "0", `{"node":"n","worker":0,"episode":"backwards"}`)
	if n := len(stream("leaf.clock.backwards")); n != 1 {
		t.Errorf("%d alerts, want one", n)
	}
}

// A start with a clock that differs from the others' clocks: snowflakes come from the others, until the clocks agree.
func TestClockDiffersAtStart(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	a, b := newClock(), newClock()
	b.start = a.start
	registry, store := snowflaketest.NewMemory(), memory(t, "order")
	start(t, s, "a", store, on(a, registry))
	stream := eventsOn(t, nc)
	b.step(time.Hour)
	start(t, s, "b", store, on(b, registry))
	if body, code := ask(t, nc, "leaf.segment.order", ""); code != "" {
		t.Errorf("a tag is refused with %s: %s", code, body)
	}
	if s, _ := state(t, nc, "b"); !slices.Equal(s.Missing, []string{"worker"}) || s.Worker != nil ||
		!strings.Contains(s.Reasons["worker"], "1h0m0s ahead") {
		t.Errorf("the state is %+v", s)
	}
	wantEvent(t, stream, "alert", "leaf.clock.skewed", "b",
		fmt.Sprintf(`{"node":"b","now_ms":%d,"peers_ms":%d,"threshold_ms":1000}`, b.now(), a.now()))
	for range 50 {
		if p := flake(t, nc); p.Worker != 0 || p.UnixMS != a.now() {
			t.Fatalf("a snowflake is %+v", p)
		}
	}
	b.step(-time.Hour)
	testkit.Eventually(t, "both serve", func() bool { return slices.Equal(serving(t, nc), []string{"a", "b"}) })
	testkit.Eventually(t, "the alert ends", func() bool { return len(stream("leaf.clock.recovered")) == 1 })
	if n := len(stream("leaf.clock.skewed")); n != 1 {
		t.Errorf("%d alerts, want the one", n)
	}
}
