package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// What is normal in a new installation is said without a protocol's codes.
func TestNoStreamInWords(t *testing.T) {
	t.Parallel()
	if said := explain(fmt.Errorf("following the events: %w", jetstream.ErrStreamNotFound)); strings.Contains(said, "API error") || !strings.Contains(said, "LEAF_EVENTS") {
		t.Errorf("%q", said)
	}
}

func TestFeedIsBounded(t *testing.T) {
	t.Parallel()
	f := newFeed(nil)
	for i := range maxAlerts + 50 {
		f.addLive(starved("a", fmt.Sprint(i), time.Duration(i)))
		if i < 30 { // these are over, and so forgotten first
			f.addLive(recovered("a", fmt.Sprint(i), "starved", time.Duration(i)))
		}
	}
	v := f.view(nil)
	kept := f.alerts.count
	if kept > maxAlerts || kept < maxAlerts*9/10 || kept != len(f.alerts.of["a"]) || v.Lasting != kept || len(v.Alerts) != kept || len(v.Events) != maxShown {
		t.Errorf("%d alerts are kept, %d last, %d and %d are shown", kept, v.Lasting, len(v.Alerts), len(v.Events))
	}
	for i, key := range []string{"10049", "10048"} {
		if v.Alerts[i].Key != key || v.Events[i].Key != key {
			t.Errorf("alert %d is of %s, event %d of %s, want %s", i, v.Alerts[i].Key, i, v.Events[i].Key, key)
		}
	}
	oldest := maxAlerts + 50 - kept
	is := func(i int) bool { return f.alerts.of["a"][episode{"leaf.segment.starved", fmt.Sprint(i)}] != nil }
	if is(oldest-1) || !is(oldest) {
		t.Error("not the oldest were forgotten")
	}
	f.addLive(starved("a", "10049", 10049)) // heard again, because the stream is unavailable
	if again := f.view(nil); again.Events[0].ID != v.Events[0].ID || again.Events[1].ID != v.Events[1].ID {
		t.Error("an event is shown twice")
	}
}
