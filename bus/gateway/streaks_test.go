package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
)

// A tag is refused until IDs of it are handed out or reserved. What callers got wrong does not count, nor an operator's
// will.
func TestRefusedTags(t *testing.T) {
	t.Parallel()
	answer := func(reason bus.Reason) func(*Metrics) {
		return func(m *Metrics) {
			m.Answered(generator.Answer{Kind: generator.SegmentKind, Tag: "order", Reason: reason})
		}
	}
	away := answer(bus.StoreUnavailable)
	for name, c := range map[string]struct {
		happens []func(*Metrics)
		refused int // requests
	}{
		"refused twice":   {[]func(*Metrics){away, answer(bus.TimedOut)}, 2},
		"answered":        {[]func(*Metrics){away, answer("")}, 0},
		"paused":          {[]func(*Metrics){away, answer(bus.Paused)}, 0},
		"wrong callers":   {[]func(*Metrics){answer(bus.BadRequest), answer(bus.Draining), answer(generator.Canceled)}, 0},
		"wrong beside it": {[]func(*Metrics){away, answer(bus.BatchTooLarge)}, 1},
		"refilled": {[]func(*Metrics){away, func(m *Metrics) {
			m.Refilled(allocator.Refilled{Tag: "order", Cause: allocator.CauseDemand})
		}}, 0},
		"claimed": {[]func(*Metrics){away, func(m *Metrics) { m.Claimed(allocator.Claimed{Tag: "order"}) }}, 0},
	} {
		s := serve(t, &stated{})
		for _, happens := range c.happens {
			happens(s.cfg.Metrics)
		}
		lines := metrics(t, s)
		is := slices.Contains(lines, fmt.Sprintf(`leaf_tag_refused_requests{tag="order"} %d`, c.refused))
		none := !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "leaf_tag_refused") })
		if c.refused > 0 && !is || c.refused == 0 && !none {
			t.Errorf("%s: %q", name, lines)
		}
	}
}

// Of many tags the metrics have those that have been without IDs for longest. What nobody asks for is forgotten.
func TestRefusedTagsAreBounded(t *testing.T) {
	t.Parallel()
	var s streaks
	now := time.Now()
	for i := range mostStreaks + 10 {
		s.refused(fmt.Sprint(i), bus.TimedOut, now)
	}
	s.refused("7", bus.TimedOut, now.Add(time.Minute))
	if worst := s.worst(now); len(s.tags) != mostStreaks || len(worst) != worstTags || worst[0] != (refusedTag{"7", 2, time.Minute}) {
		t.Errorf("%d tags, the worst are %v", len(s.tags), worst)
	}
	later := now.Add(streakLasts + 2*time.Minute)
	if s.refused("new", bus.TimedOut, later); len(s.tags) != 1 || len(s.worst(later)) != 1 {
		t.Errorf("%d tags are kept for ever", len(s.tags))
	}
}
