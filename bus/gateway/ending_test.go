package gateway

import (
	"fmt"
	"testing"

	"github.com/leafbus/leafbus/bus/admin"
)

// The tags that end first, from what several generators have of each.
func TestFirstEnding(t *testing.T) {
	t.Parallel()
	for want, states := range map[string][]admin.State{
		"[]": {{}, {}},
		"[also dry fast slow idle]": {{Ending: []admin.EndingTag{
			{Tag: "idle", Left: 1}, {Tag: "slow", Left: 10, Rate: 1}, {Tag: "fast", Left: 10, Rate: 5}, {Tag: "dry"}, {Tag: "also", Rate: 2}}}},
		"[b a]": { // a ends first at one of them, and is served by the other
			{Ending: []admin.EndingTag{{Tag: "a", Left: 1, Rate: 1}, {Tag: "b", Left: 5, Rate: 1}}},
			{Ending: []admin.EndingTag{{Tag: "a", Left: 100, Rate: 1}}}},
	} {
		if got := fmt.Sprint(firstEnding(states)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	got := buffersOf([]string{"a", "gone", "b"}, []admin.BuffersPage{
		{Node: "x", Buffers: []admin.Buffer{{Tag: "b", Left: 2}, {Tag: "a", Left: 1}}}, {Node: "y", Buffers: []admin.Buffer{{Tag: "a", Left: 3}}}})
	if len(got) != 2 || len(got[0].Buffers) != 2 || got[0].Buffers[1].Node != "y" || got[1].Buffers[0].Left != 2 {
		t.Errorf("%+v", got)
	}
}
