package generator

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
)

// episodes are generators that do not run, and publish about one lost peer.
type episodes struct {
	t     *testing.T
	js    jetstream.JetStream
	peers []*Generator
}

// newEpisodes makes the stream, whose server knows the IDs of events for the window.
func newEpisodes(t *testing.T, peers int, window time.Duration) *episodes {
	t.Helper()
	server := natskit.Start(t)
	e := &episodes{t: t}
	for range peers {
		nc := natskit.Connect(t, server)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		e.js = js
		e.peers = append(e.peers, New(Config{Conn: nc, JS: js, Node: "n", Log: testkit.Quiet, Snowflake: snowflake.Config{Layout: snowflake.DefaultLayout()}}))
	}
	if _, err := e.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: bus.EventStream, Subjects: []string{bus.EventSubjects}, AllowDirect: true, Duplicates: window}); err != nil {
		t.Fatal(err)
	}
	return e
}

// all runs f for each peer, at the same time.
func (e *episodes) all(f func(*Generator)) {
	var running sync.WaitGroup
	for _, g := range e.peers {
		running.Go(func() { f(g) })
	}
	running.Wait()
}

// lose makes a run of the peer lost, and publishes what is due.
func (e *episodes) lose(run string) {
	e.all(func(g *Generator) {
		g.group.mu.Lock()
		g.group.loseLocked(member{heartbeat: heartbeat{Node: "a.b", ID: run}, heard: time.Now().Add(-lostAfter)})
		g.group.lost["a.b"].declared = true
		g.group.mu.Unlock()
		e.publish(g)
	})
}

// back lets the peers hear it again, and publishes what is due.
func (e *episodes) back() {
	e.all(func(g *Generator) {
		g.group.mu.Lock()
		g.group.returnLocked("a.b")
		g.group.mu.Unlock()
		e.publish(g)
	})
}

func (e *episodes) publish(g *Generator) {
	g.group.pulse.came(time.Now(), g.group.pulse.send(time.Now())) // it hears NATS
	_, begin, end := g.group.judge(time.Now(), "n")
	if err := g.publishLosses(e.t.Context(), begin, end); err != nil {
		e.t.Error(err)
	}
}

// want checks how many alerts and ends the stream has.
func (e *episodes) want(alerts, ends int) {
	e.t.Helper()
	a, b := e.count("leaf.events.alert.node.lost.a.b"), e.count("leaf.events.info.node.recovered.a.b")
	if a != alerts || b != ends {
		e.t.Fatalf("the stream has %d alerts and %d ends, want %d and %d", a, b, alerts, ends)
	}
}

// count is how many messages the stream has on a subject.
func (e *episodes) count(subject string) int {
	e.t.Helper()
	stream, err := e.js.Stream(e.t.Context(), bus.EventStream)
	if err != nil {
		e.t.Fatal(err)
	}
	info, err := stream.Info(e.t.Context(), jetstream.WithSubjectFilter(subject))
	if err != nil {
		e.t.Fatal(err)
	}
	return int(info.State.Subjects[subject])
}

// All peers publish at the same time, and the stream keeps one alert and one end of each episode, also if one run is lost
// again within the two minutes in which the server knows equal IDs.
func TestLostEpisodes(t *testing.T) {
	t.Parallel()
	e := newEpisodes(t, 5, 2*time.Minute)
	for i := range 20 {
		e.lose("run")
		e.want(i+1, i)
		e.back()
		e.want(i+1, i+1)
	}
	e.lose("next")
	e.want(21, 20)
	e.back()
	e.want(21, 21)
}

// A peer that was cut off comes late, when the server does not know the IDs any more. It adds nothing: neither to an episode
// that lasts, nor to one that is over.
func TestLostByALatePeer(t *testing.T) {
	t.Parallel()
	const window = 100 * time.Millisecond
	e := newEpisodes(t, 2, window)
	forgotten := func(id string) {
		testkit.Eventually(t, "that the server knows earlier IDs no more", func() bool {
			ack, err := e.js.Publish(t.Context(), "leaf.events.info.other.thing."+id, nil, jetstream.WithMsgID(id))
			return err == nil && !ack.Duplicate && ack.Sequence > 1 && e.count("leaf.events.info.other.thing."+id) > 1
		})
	}
	first, late := e.peers[:1], e.peers[1:]
	e.peers = first
	e.lose("run")
	forgotten("a")
	e.peers = late
	e.lose("run")
	e.want(1, 0)
	e.peers = first
	e.back()
	e.want(1, 1)
	forgotten("b")
	e.peers = late
	e.back()
	e.want(1, 1)
	if late[0].group.lost["a.b"] != nil {
		t.Error("it is remembered for ever")
	}
}

// The ends of node.stale are on the same subject.
func TestLostBesideStale(t *testing.T) {
	t.Parallel()
	e := newEpisodes(t, 2, 2*time.Minute)
	stale := func() {
		msg := newEvent("node.recovered", "a.b", "a.b", bus.RecoveredEvent{Node: "a.b", Episode: "stale"})
		if _, err := e.js.PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
	}
	e.lose("run")
	stale()
	e.want(1, 1)
	e.back()
	e.want(1, 2)
	stale()
	e.lose("run")
	e.want(2, 3)
	e.back()
	e.want(2, 4)
}

// Without the stream nothing is published, and an alert that is not true any more is never published.
func TestLostWithoutTheStream(t *testing.T) {
	t.Parallel()
	e := newEpisodes(t, 1, 2*time.Minute)
	g := e.peers[0]
	if err := e.js.DeleteStream(t.Context(), bus.EventStream); err != nil {
		t.Fatal(err)
	}
	g.group.mu.Lock()
	g.group.loseLocked(member{heartbeat: heartbeat{Node: "a.b", ID: "run"}, heard: time.Now().Add(-lostAfter)})
	g.group.lost["a.b"].declared = true
	g.group.mu.Unlock()
	g.group.pulse.came(time.Now(), g.group.pulse.send(time.Now()))
	_, begin, _ := g.group.judge(time.Now(), "n")
	if err := g.publishLosses(t.Context(), begin, nil); err == nil || !strings.Contains(err.Error(), "no response") {
		t.Errorf("without the stream: %v", err)
	}
	if _, err := e.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: bus.EventStream, Subjects: []string{bus.EventSubjects}}); err != nil {
		t.Fatal(err)
	}
	e.back()
	e.want(0, 0)
	if len(g.group.lost) > 0 {
		t.Error("it is remembered for ever")
	}
}
