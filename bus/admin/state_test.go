package admin_test

import (
	"slices"
	"testing"

	"github.com/leafbus/leafbus/bus/admin"
)

// A generator that answers is not lost, whatever another one hears. Of several reports the latest heartbeat counts, by
// the age that each reporter gives: their clocks may differ.
func TestLostNodes(t *testing.T) {
	t.Parallel()
	states := []admin.State{
		{Node: "a", Lost: []admin.LostNode{{Node: "c", LastHeardMS: 9_000, SilentMS: 70_000}, {Node: "e", SilentMS: 5}, {Node: "b", SilentMS: 6_000}}},
		{Node: "b", Lost: []admin.LostNode{{Node: "d", SilentMS: 7}, {Node: "c", LastHeardMS: 1_000, SilentMS: 60_000}}},
	}
	want := []admin.LostNode{{Node: "c", LastHeardMS: 1_000, SilentMS: 60_000}, {Node: "d", SilentMS: 7}, {Node: "e", SilentMS: 5}}
	if got := admin.LostNodes(states); !slices.Equal(got, want) {
		t.Errorf("lost are %+v, want %+v", got, want)
	}
	if got := admin.LostNodes(nil); len(got) != 0 {
		t.Errorf("lost are %+v", got)
	}
}
