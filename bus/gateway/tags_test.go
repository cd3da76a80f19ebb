package gateway

import (
	"fmt"
	"testing"

	"github.com/leafbus/leafbus/bus/admin"
)

// The tags that end first, and then the busiest, from what several generators have of each.
func TestBusiest(t *testing.T) {
	t.Parallel()
	many := make([]admin.Buffer, 2*maxBusiest)
	var all []string
	for i := range many {
		many[i] = admin.Buffer{Tag: fmt.Sprintf("t%02d", i), Rate: float64(100 - i)}
		if len(all) < maxBusiest {
			all = append(all, many[i].Tag)
		}
	}
	for want, states := range map[string][]admin.State{
		"[]":            {{}, {}},
		fmt.Sprint(all): {{Busiest: many}},
		"[ends x y z]":  {{Busiest: []admin.Buffer{{Tag: "y", Rate: 3}, {Tag: "x", Rate: 2}, {Tag: "z"}, {Tag: "ends", Rate: 9}}, Ending: []admin.EndingTag{{Tag: "ends", Left: 9}}}, {Busiest: []admin.Buffer{{Tag: "x", Rate: 2}}}},
		"[also dry fast slow idle]": {{Ending: []admin.EndingTag{
			{Tag: "idle", Left: 1}, {Tag: "slow", Left: 10, Rate: 1}, {Tag: "fast", Left: 10, Rate: 5}, {Tag: "dry"}, {Tag: "also", Rate: 2}}}},
		"[b a]": { // a ends first at one of them, and is served by the other
			{Ending: []admin.EndingTag{{Tag: "a", Left: 1, Rate: 1}, {Tag: "b", Left: 5, Rate: 1}}},
			{Ending: []admin.EndingTag{{Tag: "a", Left: 100, Rate: 1}}}},
	} {
		if got := fmt.Sprint(busiest(states)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A record that cannot be served stands among the others, with its reason.
func TestUnservedTags(t *testing.T) {
	t.Parallel()
	v := newTagsView(admin.TagsPage{Tags: []admin.TagRecord{{Tag: "a"}, {Tag: "c"}}, Next: "c",
		Unserved: []admin.UnservedTag{{TagRecord: admin.TagRecord{Tag: "b"}, Problem: "damaged"}}}, nil)
	if len(v.Tags) != 3 || v.Tags[1].Tag != "b" || v.Tags[1].Problem != "damaged" || !v.Tags[1].Stored || v.Next != "c" {
		t.Errorf("%+v", v)
	}
}
