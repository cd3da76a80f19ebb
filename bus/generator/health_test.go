package generator

import (
	"testing"
	"time"
)

// TestHealth: a service leaves its queue group after 100 ms of being unable to answer, and returns after five seconds
// of health. At the start it enters as soon as it can answer.
func TestHealth(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	h := health{since: now}
	for i, step := range []struct {
		after time.Duration // since the step before
		able  bool
		in    bool // the group, if a peer can serve
	}{
		{200 * ms, false, false},
		{200 * ms, true, true}, // the start is over
		{time.Minute, false, true},
		{80 * ms, false, true},
		{10 * ms, true, true}, // a short moment
		{time.Minute, false, true},
		{110 * ms, false, false},
		{200 * ms, true, false},
		{4900 * ms, true, false},
		{200 * ms, false, false}, // a slow disk
		{200 * ms, true, false},
		{4900 * ms, true, false},
		{200 * ms, true, true},
		{100 * ms, false, true},
		{100 * ms, false, false},
	} {
		now = now.Add(step.after)
		h.note(now, step.able)
		_, bad := h.bad(now)
		if h.left = bad && i > 0; bad == step.in {
			t.Errorf("step %d: in the group %v, want %v", i, !bad, step.in)
		}
	}
	// A peer counts that has reported since this one became unable. If two become unable at a time, both stay.
	h = health{able: true}
	h.note(now, false)
	if since, bad := h.bad(now.Add(time.Second)); !bad || since != now {
		t.Errorf("it leaves: %v, if a peer has reported since %v", bad, since)
	}
}
