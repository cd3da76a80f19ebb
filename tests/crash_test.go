package tests

import (
	"context"
	"testing"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// takeOne returns one ID, which must come.
func takeOne(t *testing.T, c *bus.Client, tag string) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ranges, err := c.Take(ctx, tag, 1)
	if err != nil {
		t.Fatalf("an ID of %s: %v", tag, err)
	}
	return ranges[0].First
}

// A generator with all state in its folder is killed under load, again and
// again: the IDs continue above, and none repeats.
func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	seed := allocatortest.Seed(t)
	g := embed(t, "--tag", "order:500")
	l := startLoad(t, loadConfig{
		tag: "order", callers: 4, maxBatch: 3000,
		patience: patience / 80, mayGiveUp: true, // the answer may have died with the generator
	}, g.url, g.url, g.url)
	probe := client(t, g.url)

	for round := range 5 {
		l.more(500 + seed.Int64N(4000))
		g.kill()
		highest := l.highest.Load()
		g = g.again(t)
		if id := takeOne(t, probe, "order"); id <= highest {
			t.Fatalf("round %d: ID %d after the restart, but %d was handed out before", round, id, highest)
		}
	}
	l.more(500)
	l.stop()
	l.agrees(g.url)
	g.stop()
}

// Three generators share the load. One is killed: callers who retry get their
// IDs from the others, and none repeats. It takes part again when it is back.
func TestOneOfThreeIsKilled(t *testing.T) {
	t.Parallel()
	first := embed(t, "--tag", "order:500", "--node", "one")
	join := func(node string) *generator {
		return serve(t, t.TempDir(), "-s", first.url, "--node", node)
	}
	generators := map[string]*generator{"one": first, "two": join("two"), "three": join("three")}
	c := client(t, first.url)

	served := func() map[string]int64 {
		found := make(map[string]int64)
		for _, s := range states(t, c, len(generators)) {
			found[s.Node] = s.Counts.Requests
			if !s.Ready {
				t.Errorf("%s is not ready: %v", s.Node, s.Missing)
			}
		}
		return found
	}

	// Nobody gives up: every call of Take must succeed.
	l := startLoad(t, loadConfig{tag: "order", callers: 6, maxBatch: 3000}, first.url, first.url)
	l.more(3000)
	for node, requests := range served() {
		if requests < 100 {
			t.Errorf("%s answered %d of the first 3,000 requests", node, requests)
		}
	}

	highest := l.highest.Load()
	killed := generators["two"]
	killed.kill()
	delete(generators, "two")
	l.more(3000)
	if l.highest.Load() <= highest {
		t.Error("the IDs did not move on")
	}
	if found := served(); len(found) != 2 {
		t.Errorf("%v answer, want two", found)
	}

	generators["two"] = killed.again(t) // with the name in its folder
	if generators["two"].node != "two" {
		t.Errorf("it came back as %s", generators["two"].node)
	}
	l.more(3000)
	if found := served(); found["two"] < 100 {
		t.Errorf("the one that came back answered %d of 3,000 requests", found["two"])
	}
	l.stop()
	l.agrees(first.url)
	for _, node := range []string{"two", "three", "one"} { // NATS last
		generators[node].stop()
	}
}

// 10^8 IDs, in batches of all sizes, by many callers, from three generators.
func TestHundredMillion(t *testing.T) {
	t.Parallel()
	const total = 100_000_000
	first := embed(t, "--tag", "order", "--node", "one")
	serve(t, t.TempDir(), "-s", first.url, "--node", "two")
	serve(t, t.TempDir(), "-s", first.url, "--node", "three")

	// Take fails unless a reply has exactly as many IDs as were asked for.
	l := startLoad(t, loadConfig{tag: "order", callers: 8, maxBatch: 1_000_000, total: total, options: []bus.Option{bus.NoHedging()}},
		first.url, first.url, first.url, first.url)
	ids := l.stop()
	l.agrees(first.url)
	if ids < total {
		t.Errorf("%d IDs came, want %d", ids, total)
	}
	testkit.Eventually(t, "the generators to have counted every ID", func() bool {
		var counted int64
		for _, s := range states(t, client(t, first.url), 3) {
			if s.Counts.IDs == 0 {
				t.Errorf("%s handed out nothing", s.Node)
			}
			counted += s.Counts.IDs
		}
		return counted == ids
	})
}
