package generator

import (
	"testing"
	"time"
)

// TestHealth: a service that leaves its queue group soon after it entered returns after five seconds of health. Any
// other one returns at once.
func TestHealth(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	begin := time.Unix(1_700_000_000, 0)
	h := health{unhealthySince: begin}
	in := false
	for i, step := range []struct {
		after   time.Duration // since the step before
		healthy bool
		in      bool // the group, if a peer can serve
	}{
		{0, false, false},
		{200 * ms, true, true}, // the start is over
		{time.Minute, false, false},
		{200 * ms, true, true},
		{4800 * ms, true, true},
		{200 * ms, false, false}, // 5 s after it returned
		{200 * ms, true, true},
		{800 * ms, false, false}, // a slow disk
		{200 * ms, true, false},
		{4 * time.Second, true, false},
		{200 * ms, false, false},
		{200 * ms, true, false},
		{4800 * ms, true, false},
		{200 * ms, true, true},
		{time.Minute, false, false},
		{200 * ms, true, true},
	} {
		begin = begin.Add(step.after)
		h.note(begin, step.healthy)
		for look := range 2 { // at the second one, a peer has reported since then
			now := begin.Add(time.Duration(look) * 100 * ms)
			since, bad := h.bad(now)
			switch aside := bad && now.Add(-50*ms).After(since); {
			case aside && in:
				h.leave(now)
				in = false
			case !aside && !in:
				h.enter(now)
				in = true
				if i > 0 && !step.healthy {
					t.Errorf("step %d: it enters, and is not healthy", i)
				}
			}
		}
		if in != step.in {
			t.Errorf("step %d: in the group %v, want %v", i, in, step.in)
		}
	}
}
