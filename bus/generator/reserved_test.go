package generator_test

import (
	"slices"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// thousands are records with the tag order, of which one ID is too little for a refill ahead.
func thousands(t *testing.T) *allocatortest.MemoryRecords {
	t.Helper()
	records := memory(t)
	add(t, records, allocator.Tag{Name: "order", Step: 1000})
	return records
}

// The peers hear at once what a generator reserves. So one whose store went backwards, as a stale replica does, moves
// it up.
func TestStoreWentBackwards(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	marks := allocator.NewIndex()
	first := start(t, s, "first", thousands(t), nil)
	stale := start(t, s, "stale", thousands(t),
		func(cfg *generator.Config) { cfg.Index, cfg.StoreKind = marks, "mysql" })
	stream := eventsOn(t, stale.conn)
	first.takeAll(t, "order", 1)
	testkit.Eventually(t, "the peer has heard of it", func() bool { return marks.End("order") == 1001 })
	if ranges, err := stale.Take(t.Context(), "order", 1); err != nil || ranges[0].First != 1001 {
		t.Errorf("it hands out %v, %v", ranges, err)
	}
	testkit.Eventually(t, "the end of the alert", func() bool {
		return slices.ContainsFunc(stream("leaf.segment.recovered"), func(e events.Event) bool {
			return e.Body == (events.Recovered{Node: "stale", Tag: "order", Episode: "regressed"})
		})
	})
	alerts := stream("leaf.segment.regressed")
	want := events.Regressed{Node: "stale", Tag: "order", Store: "mysql", Got: 1, Seen: 1001,
		Action: string(allocator.Advanced)}
	if len(alerts) != 1 || alerts[0].Body != want {
		t.Errorf("the alerts are %+v, want %+v", alerts, want)
	}
}
