package installation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/testkit"
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
	k.again, k.check = 20*time.Millisecond, 100*time.Millisecond
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
	body, err := json.Marshal(events.Refill{Tag: tag, First: 1, Last: end - 1})
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
	for _, tag := range []string{"idle", "event", "seen", "mark", "row", "gone"} {
		addTag(t, store, tag, 501)
	}
	if _, err := store.Delete(t.Context(), "gone", 900); err != nil {
		t.Fatal(err)
	}
	s.refilled("event", 1001, "")
	s.refilled("event", 1501, "") // the last of a tag counts
	s.refilled("seen", 101, "3001")
	s.refilled("forgotten", 701, "") // a row that a restore has lost
	for tag, end := range map[string]int64{"mark": 6001, "row": 7, "deleted.here": 801} {
		if err := c.Folder.Marks.Record(tag, end); err != nil {
			t.Fatal(err)
		}
	}
	k := s.seeds(c)
	want := map[string]allocator.Entry{
		"idle": {End: 501, Floor: 501}, "event": {End: 1501, Floor: 501}, "seen": {End: 3001, Floor: 501},
		"mark": {End: 6001, Floor: 501}, "row": {End: 501, Floor: 501},
		"gone": {End: 900, Floor: 900}, "forgotten": {End: 701}, "deleted.here": {End: 801},
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
	// It is seeded once.
	asked := s.db.asks
	if s.seeds(s.config()); s.db.asks != asked || k.replaced.Load() > 0 {
		t.Errorf("a second generator asked %d times more; %d alerts", s.db.asks-asked, k.replaced.Load())
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
	k := s.keeper(s.config(), func(context.Context) error {
		if may.Load() {
			return nil
		}
		return older
	})
	testkit.Eventually(t, "Err names the other generator", func() bool { return errors.Is(k.Err(), older) })
	if g, err := k.store.Reserve(t.Context(), "order", 1, 1); !errors.Is(err, allocator.ErrUnavailable) {
		t.Errorf("Reserve: %v, %v", g.Range, err)
	}
	if got := s.entries(); len(got) > 0 || s.db.asks > 0 || !s.record().Ledger.IsZero() || store.Snapshot()["order"].MaxID != 501 {
		t.Errorf("it began: %+v", got)
	}
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

// claim claims a range of a tag. A conflict moves max_id up.
func (k *keeper) claim(t *testing.T, tag string, from int64) allocator.Range {
	t.Helper()
	for {
		g, err := k.store.Reserve(testkit.Context(t), tag, 1, from)
		if err == nil {
			return g.Range
		}
		if !errors.Is(err, allocator.ErrConflict) {
			t.Errorf("Reserve: %v", err)
			return g.Range
		}
	}
}

// A bucket that is lost is an alert, is made again and seeded again, and claims go on. So it is with one that somebody
// puts in its place by hand, and with one that has lost its records. After that, too, a database that goes back repeats
// nothing.
func TestLedgerLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(ctx context.Context, js jetstream.JetStream) error{
		"deleted": func(ctx context.Context, js jetstream.JetStream) error {
			return js.DeleteKeyValue(ctx, bus.BucketLedger)
		},
		"replaced by hand": func(ctx context.Context, js jetstream.JetStream) error {
			err := js.DeleteKeyValue(ctx, bus.BucketLedger)
			if err == nil {
				_, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: bus.BucketLedger})
			}
			if errors.Is(err, jetstream.ErrBucketExists) { // a generator was faster
				err = nil
			}
			return err
		},
		"made again by a cluster, with its old creation": func(ctx context.Context, js jetstream.JetStream) error {
			kv, err := js.KeyValue(ctx, bus.BucketLedger)
			if err == nil {
				err = kv.Delete(ctx, "seeded")
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, store := withLedger(t)
			addTag(t, store, "busy", 1)
			addTag(t, store, "idle", 1)
			backup := store.Snapshot()
			keepers := []*keeper{s.seeds(s.config()), s.seeds(s.config())}
			used := map[string]int64{"idle": keepers[0].claim(t, "idle", 1).Last}
			if err := lose(t.Context(), s.state().JS); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, "an alert", func() bool {
				addTag(t, store, fmt.Sprint("t", len(store.Snapshot())), 1)
				for _, k := range keepers {
					for tag := range store.Snapshot() {
						if g, err := k.store.Reserve(t.Context(), tag, 1, 1); err == nil {
							if g.First <= used[tag] {
								t.Errorf("%s: %v after %d", tag, g.Range, used[tag])
							}
							used[tag] = g.Last
						}
					}
				}
				return keepers[0].replaced.Load()+keepers[1].replaced.Load() > 0
			})
			for _, k := range keepers {
				testkit.Eventually(t, "the new bucket is in use", func() bool { return k.Err() == nil && s.entries()["idle"].End > used["idle"] })
			}
			store.Restore(backup)
			for tag, last := range used {
				if store.Snapshot()[tag].Name == "" {
					continue
				}
				if g := keepers[1].claim(t, tag, 1); g.First <= last {
					t.Errorf("%s goes on with %v after %d", tag, g, last)
				}
			}
			for _, k := range keepers {
				if n := k.replaced.Load(); n > 1 {
					t.Errorf("%d alerts", n)
				}
			}
		})
	}
}

// A damaged record, and the marker of a deletion, refuse their tags. The others are seeded. While the installation's
// record is damaged, claims go on.
func TestSeedBesideDamage(t *testing.T) {
	t.Parallel()
	s, store := withLedger(t)
	for _, tag := range []string{"damaged", "deleted", "fine"} {
		addTag(t, store, tag, 501)
	}
	if _, err := kvstore.OpenLedger(t.Context(), s.state()); err != nil {
		t.Fatal(err)
	}
	js := s.state().JS
	kv, err := js.KeyValue(t.Context(), bus.BucketLedger)
	if err != nil {
		t.Fatal(err)
	}
	_, err = kv.PutString(t.Context(), "tag.damaged", `{"end":"0"}`)
	if err = errors.Join(err, kv.Delete(t.Context(), "tag.deleted")); err != nil {
		t.Fatal(err)
	}
	k := s.seeds(s.config())
	for _, tag := range []string{"damaged", "deleted"} {
		if g, err := k.store.Reserve(t.Context(), tag, 1, 1); !errors.Is(err, allocator.ErrDamaged) {
			t.Errorf("%s: Reserve: %v, %v", tag, g.Range, err)
		}
	}
	if g := k.claim(t, "fine", 1); g.First != 501 {
		t.Errorf("Reserve: %v", g)
	}
	if _, err := kv.PutString(t.Context(), "tag.deleted", `{"end":"2001"}`); err != nil { // as the message says
		t.Fatal(err)
	}
	if g := k.claim(t, "deleted", 1); g.First < 2001 {
		t.Errorf("the repaired tag: %v", g)
	}
	record, err := js.KeyValue(t.Context(), bus.BucketInstallation)
	if err == nil {
		_, err = record.PutString(t.Context(), kvstore.InstallationKey, "{")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := k.settle(t.Context(), mayBegin, func(string) {}); !errors.Is(err, allocator.ErrUnavailable) {
		t.Errorf("settle: %v", err)
	}
	k.claim(t, "fine", 1)
}

// A bucket that could lose records ends the start at once. One that an operator changes while the generator runs
// stops the claims until it is changed back.
func TestUnfitLedger(t *testing.T) {
	t.Parallel()
	s, store := withLedger(t)
	addTag(t, store, "order", 1)
	k := s.seeds(s.config())
	js := s.state().JS
	stream, err := js.Stream(t.Context(), "KV_"+bus.BucketLedger)
	if err != nil {
		t.Fatal(err)
	}
	set := func(age time.Duration) {
		t.Helper()
		c := stream.CachedInfo().Config
		c.MaxAge = age
		if _, err := js.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	set(time.Hour)
	if err := s.keeper(s.config(), mayBegin).await(testkit.Context(t)); !errors.Is(err, allocator.ErrRefused) || !strings.Contains(err.Error(), "an age limit") {
		t.Errorf("a start: %v", err)
	}
	testkit.Eventually(t, "no claims", func() bool {
		_, err := k.store.Reserve(t.Context(), "order", 1, 1)
		return errors.Is(err, allocator.ErrUnavailable) && strings.Contains(err.Error(), "an age limit")
	})
	set(0)
	testkit.Eventually(t, "claims", func() bool {
		_, err := k.store.Reserve(t.Context(), "order", 1, 1)
		return err == nil
	})
}
