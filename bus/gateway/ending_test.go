package gateway

import (
	"fmt"
	"testing"

	"github.com/leafbus/leafbus/bus"
)

// The tags that end first, from what several generators have of each.
func TestFirstEnding(t *testing.T) {
	t.Parallel()
	many := bus.State{}
	for i := range maxEnding + 5 {
		many.Ending = append(many.Ending, bus.EndingTag{Tag: fmt.Sprintf("many.%02d", i), Left: int64(1000 + i), Rate: 1})
	}
	for name, c := range map[string]struct {
		states []bus.State
		want   string
	}{
		"none":  {[]bus.State{{}, {}}, "[]"},
		"order": {[]bus.State{{Ending: []bus.EndingTag{{Tag: "idle", Left: 1}, {Tag: "slow", Left: 10, Rate: 1}, {Tag: "fast", Left: 10, Rate: 5}, {Tag: "dry"}, {Tag: "also", Rate: 2}}}}, "[also dry fast slow idle]"},
		"together": {[]bus.State{
			{Ending: []bus.EndingTag{{Tag: "a", Left: 1, Rate: 1}, {Tag: "b", Left: 5, Rate: 1}}},
			{Ending: []bus.EndingTag{{Tag: "a", Left: 100, Rate: 1}}},
		}, "[b a]"}, // a ends first at one of them, and is served by the other
	} {
		if got := fmt.Sprint(firstEnding(c.states)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if got := firstEnding([]bus.State{many}); len(got) != maxEnding || got[0] != "many.00" {
		t.Errorf("of many: %q", got)
	}
	held := []bus.BuffersPage{{Node: "x", Buffers: []bus.Buffer{{Tag: "b", Left: 2}, {Tag: "a", Left: 1}}}, {Node: "y", Buffers: []bus.Buffer{{Tag: "a", Left: 3}}}}
	got := buffersOf([]string{"a", "gone", "b"}, held)
	if len(got) != 2 || got[0].Tag != "a" || len(got[0].Buffers) != 2 || got[0].Buffers[1].Node != "y" || got[0].Buffers[1].Left != 3 || got[1].Buffers[0].Left != 2 {
		t.Errorf("%+v", got)
	}
}
