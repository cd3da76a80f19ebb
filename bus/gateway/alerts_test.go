package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus/events"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// eventOf returns an event that a generator publishes so long after noon.
func eventOf(node, what, key string, after time.Duration, body any) events.Event {
	severity := "alert"
	switch body.(type) {
	case events.Recovered, events.Node:
		severity = "info"
	}
	return events.Event{
		ID: fmt.Sprint(node, what, key, after), Source: "/leaf/" + node, Type: "leaf." + what, Key: key,
		Time: noon.Add(after), Severity: severity, Data: json.RawMessage(`{}`), Body: body,
	}
}

func starved(node, tag string, after time.Duration) events.Event {
	return eventOf(node, "segment.starved", tag, after, events.Starved{Node: node, Tag: tag})
}

func recovered(node, tag, episode string, after time.Duration) events.Event {
	return eventOf(node, "segment.recovered", tag, after, events.Recovered{Node: node, Tag: tag, Episode: episode})
}

func node(name, what string, after time.Duration) events.Event {
	return eventOf(name, "node."+what, name, after, events.Node{Node: name})
}

func worker(name, what string, after time.Duration) events.Event {
	e := eventOf(name, "worker."+what, "7", after, events.Worker{Node: name, Worker: 7})
	if what == "acquired" {
		e.Severity = "info"
	}
	return e
}

func skewed(name string, after time.Duration) events.Event {
	return eventOf(name, "clock.skewed", name, after, events.ClockSkewed{Node: name})
}

// published is an event that another generator than the one it is about has published.
func published(by string, e events.Event) events.Event {
	e.Source = "/leaf/" + by
	return e
}

// alertsOf are the alerts of a view, each with its type, key, node and when it was over.
func alertsOf(v feedView) (list []string) {
	for _, n := range v.Alerts {
		over := "-"
		if !n.Over.IsZero() {
			over = n.Over.Sub(noon).String()
		}
		kind := n.Type[strings.LastIndex(n.Type, ".")+1:]
		list = append(list, fmt.Sprintf("%s %s %s %s", kind, n.Key, n.Node, over))
	}
	return list
}

// If all that could publish the end of node.lost started again meanwhile, it is over when the generator is there or
// when its reservation is over.
func TestLostWithoutAnEnd(t *testing.T) {
	t.Parallel()
	lost := func(until int64, runs, over bool) {
		t.Helper()
		f := newFeed(nil, nil)
		f.addLive(published("b", events.Event{ID: "1", Type: "leaf.node.lost", Key: "a", Severity: "alert", Time: time.Now().Add(-time.Minute),
			Data: json.RawMessage(`{}`), Body: events.Lost{Node: "a", UntilMS: until}}))
		if v := f.view(func(string) bool { return runs }); (v.Lasting == 0) != over {
			t.Errorf("until %d, running %v: %+v", until, runs, v.Alerts)
		}
	}
	later := time.Now().Add(time.Hour).UnixMilli()
	lost(later, false, false)
	lost(later, true, true)
	lost(1, false, true)
}

func TestAlertsAndTheirEnds(t *testing.T) {
	t.Parallel()
	second := time.Second
	for name, c := range map[string]struct {
		events  []events.Event // that are heard
		lasting int
		want    []string // type key node, and when it was over
	}{
		"lasts":   {[]events.Event{starved("a", "order", 0)}, 1, []string{"starved order a -"}},
		"is over": {[]events.Event{starved("a", "order", 0), recovered("a", "order", "starved", second)}, 0, []string{"starved order a 1s"}},
		"comes twice, the second time after its end": {
			[]events.Event{starved("a", "order", 0), recovered("a", "order", "starved", second), starved("a", "order", 0)}, 0, []string{"starved order a 1s"}},
		"comes again": {
			[]events.Event{starved("a", "order", 0), recovered("a", "order", "starved", second), starved("a", "order", 2*second)}, 1, []string{"starved order a -"}},
		"the end of the one before comes late": {
			[]events.Event{starved("a", "order", 0), starved("a", "order", 2*second), recovered("a", "order", "starved", second)}, 1, []string{"starved order a -"}},
		"the end of another episode": {
			[]events.Event{starved("a", "order", 0), recovered("a", "order", "refill_failed", second)}, 1, []string{"starved order a -"}},
		"the end of another generator's": {
			[]events.Event{starved("a", "order", 0), recovered("b", "order", "starved", second)}, 1, []string{"starved order a -"}},
		"those that last come first, the newest of each": {
			[]events.Event{
				starved("a", "1", 0), recovered("a", "1", "starved", 9*second), starved("a", "2", second),
				starved("b", "3", 3*second), recovered("b", "3", "starved", 4*second), starved("b", "4", 2*second),
			}, 2, []string{"starved 4 b -", "starved 2 a -", "starved 3 b 4s", "starved 1 a 9s"}},
		"of a lost generator, and another one publishes the end": {
			[]events.Event{
				published("b", eventOf("a", "node.lost", "a", 0, events.Lost{Node: "a"})),
				eventOf("a", "node.recovered", "a", second, events.Recovered{Node: "a", Episode: "stale"}),
				published("c", eventOf("a", "node.recovered", "a", 2*second, events.Recovered{Node: "a", Episode: events.EpisodeLost})),
			}, 0, []string{"lost a a 2s"}},
		"of a lost generator that starts again": {
			[]events.Event{published("b", eventOf("a", "node.lost", "a", 0, events.Lost{Node: "a"})), node("a", "started", second)},
			0, []string{"lost a a 1s"}},
		"its generator stops": {
			[]events.Event{starved("a", "order", 0), node("a", "stopped", second)}, 0, []string{"starved order a 1s"}},
		"another generator starts": {
			[]events.Event{starved("a", "order", 0), node("b", "started", second)}, 1, []string{"starved order a -"}},
		"told by the same process before it could serve": {
			[]events.Event{
				starved("a", "before", 0), starved("a", "order", 2*second),
				eventOf("a", "node.started", "a", 3*second, events.Node{Node: "a", Started: noon.Add(second)}),
			}, 1, []string{"starved order a -", "starved before a 1s"}},
		"a worker's, and the next process has one": {
			[]events.Event{worker("a", "expiring", 0), worker("a", "acquired", second)}, 0, []string{"expiring 7 a 1s"}},
		"of a clock, and the generator starts without a worker": {
			[]events.Event{skewed("a", 0), node("a", "started", second)}, 1, []string{"skewed a a -"}},
		"of a clock, and its generator stops": {
			[]events.Event{skewed("a", 0), node("a", "stopped", second)}, 0, []string{"skewed a a 1s"}},
		"of a clock, and the generator has a worker": {
			[]events.Event{skewed("a", 0), worker("a", "acquired", second)}, 0, []string{"skewed a a 1s"}},
	} {
		f := newFeed(nil, nil)
		for _, e := range c.events {
			f.addLive(e)
		}
		v := f.view(nil)
		if got := alertsOf(v); v.Lasting != c.lasting || !slices.Equal(got, c.want) {
			t.Errorf("%s: %d last, %q, want %d and %q", name, v.Lasting, got, c.lasting, c.want)
		}
	}
}

// What the stream says of the order counts, and not clocks, which are set back; until that is
// read, the clocks are all there is.
func TestAlertsInTheOrderOfTheStream(t *testing.T) {
	t.Parallel()
	hour := time.Hour
	for name, c := range map[string]struct {
		heard, read []events.Event
		want        []string
	}{
		"the start is heard before the alert is read": {
			[]events.Event{node("a", "started", hour)},
			[]events.Event{starved("a", "order", 0), node("a", "started", hour)}, []string{"starved order a 1h0m0s"}},
		"the clock was ahead, and is set right for the next start": {
			[]events.Event{worker("a", "acquired", 0)},
			[]events.Event{skewed("a", hour), worker("a", "acquired", 0)}, []string{"skewed a a 0s"}},
		"the stream is read anew": {
			[]events.Event{starved("a", "order", 2*hour)},
			[]events.Event{
				starved("a", "order", 0), node("a", "started", hour), starved("a", "order", 2*hour),
				starved("a", "order", 0), node("a", "started", hour), starved("a", "order", 2*hour),
			}, []string{"starved order a -"}},
	} {
		f := newFeed(nil, nil)
		for _, e := range c.heard {
			f.addLive(e)
		}
		for _, e := range c.read {
			f.addStored(e)
		}
		if got := alertsOf(f.view(nil)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
