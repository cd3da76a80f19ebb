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
