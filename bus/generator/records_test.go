package generator_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// Records that are unavailable for a while are an alert, once an episode, and missing in the state. IDs
// come from memory meanwhile.
func TestRecordsUnavailable(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	records := memory(t, "order")
	fine := time.Now() // the look that finds the records away may have begun before it was
	g := start(t, s, "n", records, nil)
	stream := eventsOn(t, nc)
	for episode := 1; episode <= 2; episode++ {
		records.SetErr(errors.New("no leader"))
		if r := g.Readiness(); r.Ready || strings.Join(r.Missing, " ") != "store" || r.Reasons["store"] != "no leader" || !r.Segment {
			t.Errorf("readiness: %+v", r)
		}
		testkit.Eventually(t, "the alert", func() bool { return len(stream("leaf.records.unavailable")) == episode })
		e := stream("leaf.records.unavailable")[episode-1]
		body := e.Body.(events.RecordsUnavailable)
		if since := time.UnixMilli(body.SinceMS); since.Before(fine.Truncate(time.Millisecond)) || since.After(e.Time.Add(-900*time.Millisecond)) {
			t.Errorf("the records went away after %v, the alert of %v says %v", fine, e.Time, since)
		}
		if e.Key != "n" || e.Severity != "alert" || !strings.HasPrefix(string(e.Data), `{"node":"n","error":"no leader","since_ms":`) {
			t.Errorf("the alert is %+v: %s", e, e.Data)
		}
		if _, err := g.Take(t.Context(), "order", 1); err != nil {
			t.Errorf("it does not go on: %v", err)
		}
		records.SetErr(nil)
		testkit.Eventually(t, "its end", func() bool { return len(stream("leaf.records.recovered")) == episode })
		if e := stream("leaf.records.recovered")[episode-1]; e.Key != "n" || e.Severity != "info" || string(e.Data) != `{"node":"n","episode":"unavailable"}` {
			t.Errorf("its end is %+v: %s", e, e.Data)
		}
		if r := g.Readiness(); !r.Ready {
			t.Errorf("readiness: %+v", r)
		}
		fine = stream("leaf.records.recovered")[episode-1].Time
	}
	if n := len(stream("leaf.records.unavailable")); n != 2 {
		t.Errorf("%d alerts of two episodes", n)
	}
}
