package generator_test

import (
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// A generator whose connection hangs is lost for its peers, which publish one alert and one end together. It has not
// heard them either, and does not count them as lost.
func TestLostAlert(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	memory := memory(t, "order")
	a, b := start(t, s, "a", memory, nil), start(t, s, "b", memory, nil)
	cut, link := behind(t, s, "cut", memory, nil)
	stream := eventsOn(t, nc)
	ends := func() (n int) {
		for _, e := range stream("leaf.node.recovered") {
			if body := e.Body.(events.Recovered); body.Episode == events.EpisodeLost && body.Node == "cut" {
				n++
			}
		}
		return n
	}
	link.Hang(true)
	testkit.Eventually(t, "the alert", func() bool {
		return len(stream("leaf.node.lost")) > 0 && a.State().Counts.Lost == 1 && b.State().Counts.Lost == 1
	})
	if s := cut.State(); s.Counts.Lost > 0 || len(s.Lost) > 0 {
		t.Errorf("the one that is cut off counts as lost: %+v", s.Lost)
	}
	late := start(t, s, "late", memory, nil)
	testkit.Eventually(t, "one that starts later learns it", func() bool { return late.State().Counts.Lost == 1 })
	link.Hang(false)
	testkit.Eventually(t, "the end", func() bool {
		return ends() > 0 && a.State().Counts.Lost+b.State().Counts.Lost+late.State().Counts.Lost == 0
	})
	if s := cut.State(); s.Counts.Lost > 0 {
		t.Errorf("the one that was cut off counts as lost: %+v", s.Lost)
	}
	if lost := stream("leaf.node.lost"); len(lost) != 1 || lost[0].Key != "cut" || lost[0].Severity != "alert" ||
		ends() != 1 {
		t.Errorf("alerts: %+v; %d ends", lost, ends())
	}
}

// A generator that drains answers what waits, and says that it is there until it has ended: a change of max_id waits
// for it, and it is
// not lost.
func TestDrainIsHeard(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	var heartbeats atomic.Int64
	last := make(chan struct{})
	goodbye := sync.OnceFunc(func() { close(last) })
	_, err := nc.Subscribe("leaf.internal.presence", func(msg *nats.Msg) {
		var b struct {
			Gone    bool
			Segment bool
		}
		if err := json.Unmarshal(msg.Data, &b); err != nil {
			t.Error(err)
		}
		switch {
		case b.Gone:
			goodbye()
		case !b.Segment:
			heartbeats.Add(1)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	g := start(t, s, "n", taking(memory(t, "order"), gate), func(c *generator.Config) { c.MaxWait = testkit.Patience })
	replies, err := nc.SubscribeSync(nc.NewInbox())
	if err == nil {
		err = nc.PublishRequest("leaf.segment.order", replies.Subject, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the request waits", func() bool { return g.State().Counts.Waiting == 1 })
	heartbeats.Store(0)
	stopped := make(chan error)
	go func() { stopped <- g.stop() }()
	testkit.Eventually(t, "heartbeats while it drains",
		func() bool { return heartbeats.Load() >= 3 }) // one at the beginning
	close(gate)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if msg, err := replies.NextMsg(testkit.Patience); err != nil || string(msg.Data) != "1" {
		t.Errorf("the request that waited is answered with %+v, %v", msg, err)
	}
	select {
	case <-last:
	case <-time.After(testkit.Patience):
		t.Error("no last heartbeat")
	}
}

// A generator that ends answers no heartbeat any more: its peers would wait for it, and count it as lost.
func TestLastHeartbeat(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	g := start(t, s, "n", memory(t), nil)
	var gone, after atomic.Bool
	_, err := nc.Subscribe("leaf.internal.presence", func(msg *nats.Msg) {
		var b struct {
			Node string
			Gone bool
		}
		if err := json.Unmarshal(msg.Data, &b); err != nil {
			t.Error(err)
		}
		if b.Node == "n" && !b.Gone && gone.Load() {
			after.Store(true)
		}
		if b.Gone {
			gone.Store(true)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 100_000 { // so many that it reads them until it has ended
		if err := nc.Publish("leaf.internal.presence", []byte(`{"node":"p","id":"p","asks":true}`)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(nc.Flush(), g.stop(), nc.Flush()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the last heartbeat", gone.Load)
	if after.Load() {
		t.Error("it sends a heartbeat after its last one")
	}
}

// A peer that did not hear the last heartbeat of a generator takes it for lost. Others say that it is gone, but not if
// the node was started again since, and is lost.
func TestLastHeartbeatUnheard(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	store := memory(t)
	n := start(t, s, "n", store, nil)
	x := start(t, s, "x", store, nil)
	if err := x.stop(); err != nil {
		t.Fatal(err)
	}
	forgotten := func() (is bool) {
		heard, err := nc.SubscribeSync("leaf.internal.presence")
		if err != nil {
			t.Fatal(err)
		}
		defer heard.Unsubscribe()
		report := `{"node":"q","id":"q","lost_nodes":[{"node":"x","id":"` + x.RunID() + `","silent_ms":9}]}`
		if err := nc.Publish("leaf.internal.presence", []byte(report)); err != nil {
			t.Fatal(err)
		}
		for n := 0; n < 3; { // heartbeats: the third one comes after the report was read
			msg, err := heard.NextMsg(testkit.Patience)
			if err != nil {
				t.Fatal(err)
			}
			var b struct{ Node, Forgotten string }
			if err := json.Unmarshal(msg.Data, &b); err != nil {
				t.Fatal(err)
			}
			if b.Node == "n" {
				n++
				is = is || b.Forgotten == "x"
			}
		}
		return is
	}
	if !forgotten() {
		t.Error("nobody says that it is gone")
	}
	if err := nc.Publish("leaf.internal.presence", []byte(`{"node":"x","id":"later"}`)); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "its later run is heard", func() bool { return n.Hears("x") })
	testkit.Eventually(t, "its later run is not heard any more", func() bool { return !n.Hears("x") })
	if forgotten() {
		t.Error("the later run is forgotten")
	}
}
