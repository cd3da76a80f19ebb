package generator_test

import (
	"context"
	"slices"
	"testing"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
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

// Two generators that hold the same range, because the store forgot it between them, both drop the rest
// of it as soon as they hear of each other, and name it in an alert.
func TestReservedTwice(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	marks := make(map[string]*allocator.Index)
	store := thousands(t)
	before := store.Snapshot()
	own, gate, written := store.Open(), make(chan struct{}), make(chan struct{}, 1)
	// Neither sees the store's changes: who did would raise a tag that was set back before the other one claims.
	late := writing{&blind{Records: own}, func(ctx context.Context, tag allocator.Tag, revision uint64) (uint64, error) {
		made, err := own.Swap(ctx, tag, revision)
		select {
		case written <- struct{}{}:
		default:
		}
		select {
		case <-gate: // the answer comes late
		case <-t.Context().Done():
		}
		return made, err
	}}
	g := make(map[string]*running)
	run := func(node string, records allocator.Records) {
		marks[node] = allocator.NewIndex()
		g[node] = start(t, s, node, records, func(c *generator.Config) {
			c.Index, c.StoreKind, c.MaxWait = marks[node], "kv", testkit.Patience
		})
	}
	run("late", late)
	run("early", &blind{Records: store})
	published := eventsOn(t, nc)

	first := make(chan []bus.Range, 1)
	go func() {
		ranges, err := g["late"].Take(t.Context(), "order", 1)
		if err != nil {
			t.Error(err)
		}
		first <- ranges
	}()
	<-written
	store.Restore(before)
	if ranges, err := g["early"].Take(t.Context(), "order", 1); err != nil || ranges[0].First != 1 {
		t.Fatal(ranges, err)
	}
	testkit.Eventually(t, "the late one has heard of the range",
		func() bool { return marks["late"].End("order") == 1001 })
	close(gate)
	<-first
	testkit.Eventually(t, "both raise an alert", func() bool { return len(published("leaf.segment.regressed")) >= 2 })
	nodes := make(map[string]bool)
	for _, e := range published("leaf.segment.regressed") {
		body := e.Body.(events.Regressed)
		nodes[body.Node] = true
		body.Node = ""
		want := events.Regressed{Tag: "order", Store: "kv", Got: 1, Seen: 1001, Action: string(allocator.Dropped), First: 1,
			Last: 1000}
		if body != want {
			t.Errorf("the alert is %+v, want %+v", body, want)
		}
	}
	if len(nodes) != 2 {
		t.Errorf("alerts of %v", nodes)
	}
	var c allocatortest.Checker
	for range 50 {
		for node := range g {
			ranges, err := g[node].Take(t.Context(), "order", 1)
			if err != nil || ranges[0].First < 1001 {
				t.Fatalf("%s goes on with %v, %v", node, ranges, err)
			}
			c.Add(ranges...)
		}
	}
	if _, err := c.Check(); err != nil {
		t.Error(err)
	}
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
