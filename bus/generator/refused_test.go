package generator

import (
	"reflect"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

// The tags without IDs are those of which every request was refused since the last one that got IDs. The one that has been
// without IDs for longest comes first.
func TestStreaks(t *testing.T) {
	t.Parallel()
	var s streaks
	start := time.Unix(1_700_000_000, 0)
	refuse := func(tag string, reason bus.Reason, after time.Duration) { s.refused(tag, reason, start.Add(after)) }
	want := func(after time.Duration, want ...bus.RefusedTag) {
		t.Helper()
		if got := s.worst(start.Add(after)); !reflect.DeepEqual(got, want) {
			t.Errorf("after %v they are %+v, want %+v", after, got, want)
		}
	}
	s.served("a")
	want(0)
	refuse("", bus.NoWorkerID, 0) // a snowflake
	refuse("b", bus.TimedOut, 0)
	refuse("a", bus.TimedOut, time.Second)
	refuse("b", bus.StoreUnavailable, time.Minute)
	b := bus.RefusedTag{Tag: "b", Reason: bus.StoreUnavailable, Refused: 2, ForMS: 60_000}
	want(time.Minute, b, bus.RefusedTag{Tag: "a", Reason: bus.TimedOut, Refused: 1})
	s.served("a")
	s.served("c")
	want(time.Minute, b)
	for _, e := range []allocator.Event{allocator.Refilled{Tag: "f"}, allocator.Claimed{Tag: "f"}} { // the next request may come through another generator
		refuse("f", bus.StoreUnavailable, time.Minute)
		s.reserved(allocator.Recovered{Tag: "f"}) // it may have left memory without any IDs
		want(time.Minute, b, bus.RefusedTag{Tag: "f", Reason: bus.StoreUnavailable, Refused: 1})
		s.reserved(e)
		want(time.Minute, b)
	}
	for _, reason := range []bus.Reason{bus.BadRequest, bus.BadTag, bus.BatchTooLarge, bus.Draining} { // nothing about the tag
		refuse("b", reason, 2*time.Minute)
		refuse("d", reason, 2*time.Minute)
	}
	want(2*time.Minute, b)
	for _, reason := range []bus.Reason{bus.UnknownTag, bus.Paused, bus.QuotaExceeded} { // an operator's will
		refuse("e", bus.Exhausted, 2*time.Minute)
		refuse("e", reason, 2*time.Minute)
	}
	want(2*time.Minute, b)
	want(time.Minute+streakLasts, b)
	want(time.Minute + streakLasts + 1)
	refuse("b", bus.Internal, 20*time.Minute) // a new episode
	want(20*time.Minute, bus.RefusedTag{Tag: "b", Reason: bus.Internal, Refused: 1})
}
