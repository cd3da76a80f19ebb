package installation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/testkit"
)

// A bucket that is lost under load is an alert, is made again and seeded again, and claims go on. So it is with one that
// somebody puts in its place by hand. After that, too, a database that goes back repeats nothing.
func TestLedgerLostUnderLoad(t *testing.T) {
	t.Parallel()
	for name, byHand := range map[string]bool{"deleted": false, "replaced by hand": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, store := withLedger(t)
			const tags = 5
			for i := range tags {
				addTag(t, store, fmt.Sprint("t", i), 1)
			}
			addTag(t, store, "idle", 1)
			backup := store.Snapshot()
			keepers := []*keeper{s.seeds(s.config()), s.seeds(s.config())}
			checkers := make([]allocatortest.Checker, tags)
			var claims atomic.Int64
			ctx, cancel := context.WithCancel(t.Context())
			var load sync.WaitGroup
			defer load.Wait()
			defer cancel()
			for _, k := range keepers {
				for i := range tags {
					load.Go(func() {
						for ctx.Err() == nil {
							g, err := k.store.Reserve(ctx, fmt.Sprint("t", i), 1, 1)
							if err != nil {
								time.Sleep(time.Millisecond) // leaves the machine to the others
								continue
							}
							checkers[i].Add(g.Range)
							claims.Add(1)
						}
					})
				}
			}
			goOn := func() {
				t.Helper()
				before := claims.Load()
				testkit.Eventually(t, "claims", func() bool { return claims.Load() > before+50 })
			}
			goOn()
			used, err := keepers[0].store.Reserve(ctx, "idle", 100, 1)
			if err != nil {
				t.Fatal(err)
			}
			s.db.set(func() { s.db.away = errGone }) // for a while
			js := s.state().JS
			if err := js.DeleteKeyValue(t.Context(), bus.BucketLedger); err != nil {
				t.Fatal(err)
			}
			if byHand {
				_, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: bus.BucketLedger})
				if err != nil && !errors.Is(err, jetstream.ErrBucketExists) { // a generator was faster
					t.Fatal(err)
				}
			}
			alerts := func() (n int64) {
				for _, k := range keepers {
					if k.replaced.Load() > 1 {
						t.Error("a generator raised a second alert")
					}
					n += k.replaced.Load()
				}
				return n
			}
			asked := func() (n int) { s.db.set(func() { n = s.db.asks }); return n }
			before := asked()
			testkit.Eventually(t, "an alert, and attempts to fill the new bucket", func() bool { return alerts() > 0 && asked() > before+4 })
			s.db.set(func() { s.db.away = nil })
			for _, k := range keepers {
				testkit.Eventually(t, "the new bucket is in use", func() bool { return k.Err() == nil && len(s.entries()) == tags+1 })
			}
			goOn()
			store.Restore(backup)
			goOn()
			g, err := keepers[1].store.Reserve(ctx, "idle", 1, 1)
			if errors.Is(err, allocator.ErrConflict) { // max_id was moved up
				g, err = keepers[1].store.Reserve(ctx, "idle", 1, 1)
			}
			if err != nil || g.First <= used.Last {
				t.Errorf("an idle tag goes on with %v, %v after %v", g.Range, err, used.Range)
			}
			cancel()
			load.Wait()
			for i := range checkers {
				if _, err := checkers[i].Check(); err != nil {
					t.Errorf("t%d: %v", i, err)
				}
			}
			alerts()
		})
	}
}

// A damaged record, and the marker of a deletion, refuse their tags. The others are seeded.
func TestSeedBesideDamage(t *testing.T) {
	t.Parallel()
	s, store := withLedger(t)
	for _, tag := range []string{"damaged", "deleted", "fine"} {
		addTag(t, store, tag, 501)
	}
	if _, err := kvstore.OpenLedger(t.Context(), s.state()); err != nil {
		t.Fatal(err)
	}
	kv, err := s.state().JS.KeyValue(t.Context(), bus.BucketLedger)
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
	if g, err := k.store.Reserve(t.Context(), "fine", 1, 1); err != nil || g.First != 501 {
		t.Errorf("Reserve: %v, %v", g.Range, err)
	}
	if _, err := kv.PutString(t.Context(), "tag.deleted", `{"end":"2001"}`); err != nil { // as the message says
		t.Fatal(err)
	}
	_, err = k.store.Reserve(t.Context(), "deleted", 1, 1)
	if errors.Is(err, allocator.ErrConflict) { // max_id was moved up
		_, err = k.store.Reserve(t.Context(), "deleted", 1, 1)
	}
	if err != nil {
		t.Errorf("Reserve of the repaired tag: %v", err)
	}
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
	late := s.keeper(s.config(), mayBegin)
	begun := time.Now()
	if err := late.await(testkit.Context(t)); !errors.Is(err, allocator.ErrRefused) || !strings.Contains(err.Error(), "an age limit") {
		t.Errorf("a start: %v", err)
	}
	if took := time.Since(begun); took > testkit.Patience/2 {
		t.Errorf("it took %v", took)
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
	if k.replaced.Load() > 0 {
		t.Error("an alert says that the bucket was replaced")
	}
}

// While the installation's record is damaged, claims go on in the bucket that is in use.
func TestLedgerBesideADamagedRecord(t *testing.T) {
	t.Parallel()
	s, store := withLedger(t)
	addTag(t, store, "order", 1)
	k := s.seeds(s.config())
	kv, err := s.state().JS.KeyValue(t.Context(), bus.BucketInstallation)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), kvstore.InstallationKey, "{"); err != nil {
		t.Fatal(err)
	}
	if err := k.settle(t.Context(), mayBegin, func(string) {}); !errors.Is(err, allocator.ErrUnavailable) {
		t.Errorf("settle: %v", err)
	}
	if g, err := k.store.Reserve(t.Context(), "order", 1, 1); err != nil {
		t.Errorf("Reserve: %v, %v", g.Range, err)
	}
}

// A bucket whose records are lost, though it has its old creation, is an alert, and is filled again.
func TestLedgerRecordsLost(t *testing.T) {
	t.Parallel()
	s, store := withLedger(t)
	addTag(t, store, "order", 501)
	k := s.seeds(s.config())
	kv, err := s.state().JS.KeyValue(t.Context(), bus.BucketLedger)
	if err != nil {
		t.Fatal(err)
	}
	for losses := range int64(2) {
		if err := kv.Delete(t.Context(), "seeded"); err != nil { // as a cluster that makes the bucket again
			t.Fatal(err)
		}
		tag := fmt.Sprintf("t%d", losses)
		addTag(t, store, tag, 501)
		testkit.Eventually(t, "an alert", func() bool { return k.replaced.Load() == losses+1 })
		testkit.Eventually(t, "claims", func() bool {
			_, err := k.store.Reserve(t.Context(), tag, 1, 1)
			return err == nil
		})
		if got := s.entries()[tag].End; got < 501 {
			t.Errorf("the new tag's end is %d", got)
		}
	}
}
