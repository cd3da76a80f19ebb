package generator_test

import (
	"slices"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// A bulk is exactly as many IDs as were asked for, each once, whatever the
// batches are and whatever a generator gives at most.
func TestBulk(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	start(t, s, "g1", memory(t, "order"), func(c *generator.Config) { c.MaxBatch = 300 })
	c := bus.NewClient(natskit.Connect(t, s))
	seen := make(map[int64]bool)
	for _, test := range []struct {
		n, batch int64
		parallel int
	}{{1, 1, 1}, {1000, 7, 1}, {1000, 7, 5}, {5000, 100_000, 3}, {999, 1000, 1}, {10, 100, 8}} {
		var progress []int64
		var got int64
		opts := []bus.BulkOption{bus.Batch(test.batch), bus.Parallel(test.parallel), bus.Progress(func(done int64) {
			if done != got {
				t.Errorf("%+v: progress says %d after %d", test, done, got)
			}
			progress = append(progress, done)
		})}
		last := int64(0)
		for id, err := range c.IDs(testkit.Context(t), "order", test.n, opts...) {
			if err != nil || id < 1 || seen[id] {
				t.Fatalf("%+v: after %d: %d, %v (seen: %v)", test, got, id, err, seen[id])
			}
			if test.parallel == 1 && id < last {
				t.Errorf("%+v: %d after %d", test, id, last)
			}
			seen[id], last = true, id
			got++
		}
		if got != test.n || len(progress) == 0 || !slices.IsSorted(progress) || progress[len(progress)-1] != test.n {
			t.Errorf("%+v: %d IDs; progress %v", test, got, progress)
		}
		got = 0
		for r, err := range c.SnowflakeRanges(testkit.Context(t), test.n, opts...) {
			if err != nil {
				t.Fatal(err)
			}
			for id := range r.All() {
				if seen[id] {
					t.Errorf("snowflake %d came twice", id)
				}
				seen[id] = true
			}
			got += r.Len()
		}
		if got != test.n {
			t.Errorf("%+v: %d snowflakes", test, got)
		}
	}
}
