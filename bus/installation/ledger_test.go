package installation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/proxy"
)

// keeper is a generator that keeps the ledger.
type keeper struct {
	*ledger
	store    allocator.Store // with the ledger
	replaced atomic.Int64    // alerts
}

// withLedger returns a site with a database and an installation.
func withLedger(t *testing.T) (*site, *allocatortest.Memory) {
	s := newSite(t)
	s.db = newDatabase("db")
	store := allocatortest.NewMemory()
	s.db.Store = store
	s.joins(s.folder())
	return s, store
}

// keeper starts a generator. Its database is open.
func (s *site) keeper(c Config, mayBegin func(context.Context) error) *keeper {
	s.t.Helper()
	strict := kvstore.New(c.State)
	if err := strict.Open(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	k := &keeper{ledger: newLedger(c, strict)}
	k.store = allocator.WithLedger(c.Database, k.Ledger, c.Folder.Marks, "")
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.Keep(ctx, mayBegin, func(string) { k.replaced.Add(1) })
	}()
	s.t.Cleanup(func() { cancel(); <-done })
	k.open()
	return k
}

func (s *site) config() Config {
	return Config{State: s.state(), Folder: s.folder(), Database: s.db}
}

// seeds starts a generator and waits until claims are possible.
func (s *site) seeds(c Config) *keeper {
	s.t.Helper()
	k := s.keeper(c, mayBegin)
	if err := k.await(testkit.Context(s.t)); err != nil {
		s.t.Fatal(err)
	}
	return k
}

// entries are the records of the ledger that can be read; nil: there is no bucket.
func (s *site) entries() map[string]allocator.Entry {
	s.t.Helper()
	if s.looks.JS == nil {
		s.looks = s.state()
	}
	ctx, found := testkit.Context(s.t), make(map[string]allocator.Entry)
	if _, err := s.looks.JS.Stream(ctx, "KV_"+bus.BucketLedger); errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	b, err := kvstore.OpenLedger(ctx, s.looks)
	if err == nil {
		err = b.Each(ctx, func(tag string, e allocator.Entry) {
			e.Revision = 0
			found[tag] = e
		})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return found
}

// addTag adds a tag to the database.
func addTag(t *testing.T, store allocator.Store, tag string, maxID int64) {
	t.Helper()
	if _, err := store.Create(t.Context(), allocator.Tag{Name: tag, MaxID: maxID, Step: 10}); err != nil {
		t.Fatal(err)
	}
}

// refilled publishes the event of a refill that ended before end. An older version put into a header what
// else it had seen.
func (s *site) refilled(tag string, end int64, seen string) {
	s.t.Helper()
	body, err := json.Marshal(bus.RefillEvent{Tag: tag, First: 1, Last: end - 1})
	if err != nil {
		s.t.Fatal(err)
	}
	msg := nats.NewMsg("leaf.events.info.segment.refill." + tag)
	msg.Data = body
	if seen != "" {
		msg.Header.Set("Leaf-Seen", seen)
	}
	if _, err := s.state().JS.PublishMsg(s.t.Context(), msg); err != nil {
		s.t.Fatal(err)
	}
}

// An installation that has run without a ledger begins with the highest that anybody knows of each tag.
func TestSeed(t *testing.T) {
	t.Parallel()
	s, store := withLedger(t)
	c := s.config()
	events := kvstore.Events{Config: c.State, MaxBytes: 1 << 20}
	if err := events.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, tag := range []string{"idle", "event", "seen", "mark", "row", "moved", "gone"} {
		addTag(t, store, tag, 501)
	}
	moved := int64(4001)
	if _, err := store.Update(t.Context(), "moved", allocator.Change{MaxID: &moved}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Delete(t.Context(), "gone", 900); err != nil {
		t.Fatal(err)
	}
	s.refilled("event", 2001, "")
	s.refilled("event", 1001, "")
	s.refilled("event", 1501, "") // the last of a tag counts
	s.refilled("seen", 101, "3001")
	s.refilled("forgotten", 701, "") // a row that a restore has lost
	s.refilled("row", 101, "301")
	for tag, end := range map[string]int64{"mark": 6001, "row": 7, "deleted.here": 801} {
		if err := c.Folder.Marks.Record(tag, end); err != nil {
			t.Fatal(err)
		}
	}
	k := s.seeds(c)
	want := map[string]allocator.Entry{
		"idle": {End: 501, Floor: 501}, "event": {End: 1501, Floor: 501}, "seen": {End: 3001, Floor: 501},
		"mark": {End: 6001, Floor: 501}, "row": {End: 501, Floor: 501},
		"moved": {End: 4001, Floor: 4001}, "gone": {End: 900, Floor: 900}, "forgotten": {End: 701}, "deleted.here": {End: 801},
	}
	if got := s.entries(); !maps.Equal(got, want) {
		t.Errorf("the ledger has %+v\nwant %+v", got, want)
	}
	bucket, err := kvstore.OpenLedger(t.Context(), s.state())
	if err != nil || !s.record().Ledger.Equal(bucket.Created) {
		t.Errorf("the record notes %v, the bucket was created at %v (%v)", s.record().Ledger, bucket.Created, err)
	}
	if g, err := k.store.Reserve(t.Context(), "row", 1, 1); err != nil || g.First != 501 {
		t.Errorf("Reserve: %v, %v", g.Range, err)
	}
	if k.replaced.Load() > 0 {
		t.Error("the first bucket of an installation raised an alert")
	}
	// It is seeded once.
	asked := s.db.asks
	s.seeds(s.config())
	if s.db.asks != asked {
		t.Error("a second generator seeded it again")
	}
	// A tag that SQL inserts has no record until its first claim.
	addTag(t, store, "inserted", 41)
	if g, err := k.store.Reserve(t.Context(), "inserted", 1, 1); err != nil || g.First != 41 || s.entries()["inserted"].End != 51 {
		t.Errorf("a tag without a record: %v, %v; then the record is %+v", g.Range, err, s.entries()["inserted"])
	}
}

// Before the record says that all is seeded nothing is claimed, and while the seeding may not begin nothing is read.
func TestNothingIsClaimedBefore(t *testing.T) {
	t.Parallel()
	s, store := withLedger(t)
	addTag(t, store, "order", 501)
	older := errors.New("the generator b is of an older version")
	var may atomic.Bool
	var asked atomic.Int64
	k := s.keeper(s.config(), func(context.Context) error {
		asked.Add(1)
		if may.Load() {
			return nil
		}
		return older
	})
	for n := range int64(2) {
		testkit.Eventually(t, "it asks whether it may begin", func() bool { return asked.Load() > n })
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := k.await(ctx); err == nil {
			t.Error("claims are possible")
		}
		cancel()
		if g, err := k.store.Reserve(t.Context(), "order", 1, 1); !errors.Is(err, allocator.ErrUnavailable) {
			t.Errorf("Reserve: %v, %v", g.Range, err)
		}
	}
	if got := s.entries(); len(got) > 0 || s.db.asks > 0 || !s.record().Ledger.IsZero() || store.Snapshot()["order"].MaxID != 501 {
		t.Errorf("it began: %+v", got)
	}
	testkit.Eventually(t, "Err names the other generator", func() bool { return errors.Is(k.Err(), older) })
	s.db.set(func() { s.db.away = errGone })
	may.Store(true)
	testkit.Eventually(t, "Err names the database", func() bool { return errors.Is(k.Err(), errGone) })
	if !s.record().Ledger.IsZero() {
		t.Error("seeded without the database")
	}
	s.db.set(func() { s.db.away = nil })
	if err := k.await(testkit.Context(t)); err != nil {
		t.Error(err)
	}
}

// A generator that dies while it seeds leaves the rest to another one.
func TestSeedInterrupted(t *testing.T) {
	t.Parallel()
	s, store := withLedger(t)
	const tags = 2000
	for i := range tags {
		addTag(t, store, fmt.Sprint("t", i), int64(i)+1)
	}
	dying := s.config()
	p, err := proxy.Start(strings.TrimPrefix(s.server.ClientURL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	dying.State = s.stateAt("nats://" + p.Addr())
	var written atomic.Int64
	p.OnRequest(func(data []byte) proxy.Action {
		if n := strings.Count(string(data), "PUB $KV."+bus.BucketLedger); written.Add(int64(n)) > tags/2 {
			return proxy.CutBefore
		}
		return proxy.Forward
	})
	died := s.keeper(dying, mayBegin)
	testkit.Eventually(t, "it dies", func() bool { return written.Load() > tags/2 })
	p.Refuse(true)
	if n := len(s.entries()); n == 0 || n >= tags || !s.record().Ledger.IsZero() {
		t.Fatalf("%d records were written, seeded at %v; want some of %d, and not seeded", n, s.record().Ledger, tags)
	}
	s.seeds(s.config())
	got := s.entries()
	for i := range tags {
		if e := got[fmt.Sprint("t", i)]; e.End != int64(i)+1 {
			t.Fatalf("t%d: %+v", i, e)
		}
	}
	if died.Err() == nil {
		t.Error("the first one claims")
	}
}

// Several generators may seed at once, each with marks of its own.
func TestSeedTogether(t *testing.T) {
	t.Parallel()
	s, store := withLedger(t)
	const tags = 300
	for i := range tags {
		addTag(t, store, fmt.Sprint("t", i), 1)
	}
	var together sync.WaitGroup
	marked := make([]string, 4)
	for n := range marked {
		c := s.config()
		marked[n] = fmt.Sprint("t", n)
		if err := c.Folder.Marks.Record(marked[n], int64(n)*100+1000); err != nil {
			t.Fatal(err)
		}
		k := s.keeper(c, mayBegin)
		together.Go(func() {
			ctx := testkit.Context(t)
			if err := k.await(ctx); err != nil {
				t.Error(err)
			}
			for err := error(allocator.ErrConflict); errors.Is(err, allocator.ErrConflict); {
				_, err = k.store.Reserve(ctx, marked[n], 1, c.Folder.Marks.End(marked[n]))
				if err != nil && !errors.Is(err, allocator.ErrConflict) {
					t.Errorf("Reserve: %v", err)
				}
			}
			if k.replaced.Load() > 0 {
				t.Error("an alert says that the bucket was replaced")
			}
		})
	}
	together.Wait()
	got := s.entries()
	for n, tag := range marked {
		if end := got[tag].End; end <= int64(n)*100+1000 {
			t.Errorf("%s ends at %d", tag, end)
		}
	}
	if len(got) != tags {
		t.Errorf("%d records, want %d", len(got), tags)
	}
}
