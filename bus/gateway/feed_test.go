package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// told returns an event that a generator tells so long after noon.
func told(node, what, key string, after time.Duration, body any) bus.Event {
	severity := "alert"
	if _, ok := body.(bus.RecoveredEvent); ok {
		severity = "info"
	}
	return bus.Event{
		ID: fmt.Sprint(node, what, key, after), Source: "/leaf/" + node, Type: "leaf." + what, Key: key,
		Time: noon.Add(after), Severity: severity, Data: json.RawMessage(`{}`), Body: body,
	}
}

func starved(node, tag string, after time.Duration) bus.Event {
	return told(node, "segment.starved", tag, after, bus.StarvedEvent{Node: node, Tag: tag})
}

func recovered(node, tag, episode string, after time.Duration) bus.Event {
	return told(node, "segment.recovered", tag, after, bus.RecoveredEvent{Node: node, Tag: tag, Episode: episode})
}

func TestAlertsAndTheirEnds(t *testing.T) {
	t.Parallel()
	second := time.Second
	for name, c := range map[string]struct {
		events  []bus.Event
		lasting int
		want    []string // type key node, and when it was over
	}{
		"none":        {nil, 0, nil},
		"lasts":       {[]bus.Event{starved("a", "order", 0)}, 1, []string{"starved order a -"}},
		"is over":     {[]bus.Event{starved("a", "order", 0), recovered("a", "order", "starved", second)}, 0, []string{"starved order a 1s"}},
		"comes twice": {[]bus.Event{starved("a", "order", 0), starved("a", "order", 0)}, 1, []string{"starved order a -"}},
		"comes twice, the second time after its end": {
			[]bus.Event{starved("a", "order", 0), recovered("a", "order", "starved", second), starved("a", "order", 0)}, 0, []string{"starved order a 1s"}},
		"its end comes twice": {
			[]bus.Event{starved("a", "order", 0), recovered("a", "order", "starved", second), recovered("a", "order", "starved", second)}, 0, []string{"starved order a 1s"}},
		"comes again": {
			[]bus.Event{starved("a", "order", 0), recovered("a", "order", "starved", second), starved("a", "order", 2*second)}, 1, []string{"starved order a -"}},
		"the end of the one before comes late": {
			[]bus.Event{starved("a", "order", 0), starved("a", "order", 2*second), recovered("a", "order", "starved", second)}, 1, []string{"starved order a -"}},
		"the end of another episode": {
			[]bus.Event{starved("a", "order", 0), recovered("a", "order", "refill_failed", second)}, 1, []string{"starved order a -"}},
		"the end of another tag's": {
			[]bus.Event{starved("a", "order", 0), recovered("a", "coupon", "starved", second)}, 1, []string{"starved order a -"}},
		"the end of another generator's": {
			[]bus.Event{starved("a", "order", 0), recovered("b", "order", "starved", second)}, 1, []string{"starved order a -"}},
		"an end without a beginning": {[]bus.Event{recovered("a", "order", "starved", 0)}, 0, nil},
		"those that last come first, the newest of each": {
			[]bus.Event{
				starved("a", "1", 0), recovered("a", "1", "starved", 9*second), starved("a", "2", second),
				starved("b", "3", 3*second), recovered("b", "3", "starved", 4*second), starved("b", "4", 2*second),
			}, 2, []string{"starved 4 b -", "starved 2 a -", "starved 3 b 4s", "starved 1 a 9s"}},
		"of a worker": {
			[]bus.Event{
				told("a", "worker.lost", "7", 0, bus.WorkerEvent{}),
				told("a", "worker.recovered", "7", second, bus.RecoveredEvent{Episode: "lost"}),
			}, 0, []string{"lost 7 a 1s"}},
	} {
		f := newFeed(nil)
		for _, e := range c.events {
			f.note(e)
		}
		v := f.view()
		var got []string
		for _, n := range v.Alerts {
			over := "-"
			if !n.Over.IsZero() {
				over = n.Over.Sub(noon).String()
			}
			kind := n.Type[len("leaf.segment."):]
			if n.Type == "leaf.worker.lost" {
				kind = "lost"
			}
			got = append(got, fmt.Sprintf("%s %s %s %s", kind, n.Key, n.Node, over))
		}
		if v.Lasting != c.lasting || !slices.Equal(got, c.want) {
			t.Errorf("%s: %d last, %q, want %d and %q", name, v.Lasting, got, c.lasting, c.want)
		}
	}
}

func TestFeedIsBounded(t *testing.T) {
	t.Parallel()
	f := newFeed(nil)
	for i := range maxAlerts + 50 {
		f.hear(starved("a", fmt.Sprint(i), time.Duration(i)))
		if i < 30 { // these are over, and so forgotten first
			f.hear(recovered("a", fmt.Sprint(i), "starved", time.Duration(i)))
		}
	}
	v := f.view()
	if len(f.alerts) > maxAlerts || len(f.alerts) < maxAlerts*9/10 || v.Lasting != len(f.alerts) || len(v.Alerts) != maxShown || len(v.Events) != maxShown {
		t.Errorf("%d alerts are kept, %d last, %d and %d are shown", len(f.alerts), v.Lasting, len(v.Alerts), len(v.Events))
	}
	for i, key := range []string{"10049", "10048"} {
		if v.Alerts[i].Key != key || v.Events[i].Key != key {
			t.Errorf("alert %d is of %s, event %d of %s, want %s", i, v.Alerts[i].Key, i, v.Events[i].Key, key)
		}
	}
	oldest := maxAlerts + 50 - len(f.alerts)
	if f.alerts[episode{"a", "leaf.segment.starved", fmt.Sprint(oldest - 1)}] != nil || f.alerts[episode{"a", "leaf.segment.starved", fmt.Sprint(oldest)}] == nil {
		t.Error("not the oldest were forgotten")
	}
	f.hear(starved("a", "10049", 10049)) // told again, for want of the stream
	if again := f.view(); again.Events[0].ID != v.Events[0].ID || again.Events[1].ID != v.Events[1].ID {
		t.Error("an event is shown twice")
	}
}
