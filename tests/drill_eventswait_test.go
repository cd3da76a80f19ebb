//go:build drills

package tests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/mariadb"
)

// fillEvents makes the stream of events take no more.
func fillEvents(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	stream, err := js.Stream(t.Context(), bus.EventStream)
	must(t, err)
	c := stream.CachedInfo().Config
	c.Discard, c.MaxMsgs = jetstream.DiscardNew, 1
	_, err = js.UpdateStream(t.Context(), c)
	must(t, err)
}

// An older copy is put in the place of the table while nearly each request is a refill, and the
// events of thousands of them wait for the stream. The ledger knows all ranges: no ID comes twice, and no
// tag is refused.
func TestDrillDatabaseRestoredWhileEventsWait(t *testing.T) {
	const tags, callers, most, queued = 200, 24, 1000, 1000
	dsn := mariadb.NewDatabase(t)
	db := openDB(t, dsn)
	url := newNATS(t).ClientURL()
	join(t, url, dsn, []string{"one", "two"}, "--max-wait", "500ms")
	name := func(tag int) string { return fmt.Sprintf("tag%03d", tag) }
	for tag := range tags {
		execute(t, db, fmt.Sprintf("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('%s', 1, 10)", name(tag)))
	}

	var calls sync.RWMutex // held by those under way
	var mu sync.Mutex
	given := make([]allocatortest.Checker, tags)
	var refused bool
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var load sync.WaitGroup
	for range callers {
		c := client(t, url)
		load.Go(func() {
			for ctx.Err() == nil {
				tag := rand.IntN(tags)
				calls.RLock()
				ranges, err := c.Take(ctx, name(tag), rand.Int64N(most)+1)
				calls.RUnlock()
				mu.Lock()
				given[tag].Add(ranges...)
				refused = refused || errors.Is(err, bus.StoreRegressed)
				mu.Unlock()
			}
		})
	}
	fillEvents(t, jetStream(t, connect(t, url)))
	observer := client(t, url)
	waiting := func() int {
		all := states(t, observer, 2)
		return min(all[0].Counts.EventsQueued, all[1].Counts.EventsQueued)
	}
	reserved := func(table string) (sum int64) {
		must(t, db.QueryRowContext(t.Context(), "SELECT SUM(max_id) FROM "+table).Scan(&sum))
		return sum
	}
	testkit.Eventually(t, "events to wait", func() bool { return waiting() > queued })
	execute(t, db, "CREATE TABLE saved LIKE leaf_alloc", "INSERT INTO saved SELECT * FROM leaf_alloc")
	// Not so much that each generator finds out by its own ranges.
	testkit.Eventually(t, "some ranges", func() bool { return reserved("leaf_alloc") > reserved("saved")+tags*most/2 })

	// What is under way at the very moment of a restore is no evidence yet: nothing is.
	calls.Lock()
	testkit.Eventually(t, "the last refills", func() bool {
		before := reserved("leaf_alloc")
		t.Logf("%d events wait", waiting())
		return reserved("leaf_alloc") == before
	})
	execute(t, db, "UPDATE leaf_alloc a JOIN saved s ON s.biz_tag = a.biz_tag SET a.max_id = s.max_id")
	calls.Unlock()
	before := reserved("leaf_alloc")
	testkit.Eventually(t, "the load to go on", func() bool { return reserved("leaf_alloc") > before+4*tags*most })
	cancel()
	load.Wait()
	if refused {
		t.Error("a tag was refused, though the ledger knows how far it was")
	}
	for tag := range given {
		if _, err := given[tag].Check(); err != nil {
			t.Errorf("%s: %v", name(tag), err)
		}
	}
}
