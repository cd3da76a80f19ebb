package kvstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/snowflake"
)

// replica is a bucket whose reads are answered by a replica, or a mirror, that lags behind.
type replica struct {
	jetstream.KeyValue
	jetstream.KeyWatcher
	old     []jetstream.KeyValueEntry
	updates chan jetstream.KeyValueEntry
}

func (r *replica) Get(_ context.Context, key string) (jetstream.KeyValueEntry, error) {
	for _, e := range r.old {
		if e.Key() == key {
			return e, nil
		}
	}
	return nil, jetstream.ErrKeyNotFound
}

func (r *replica) WatchAll(context.Context, ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	r.updates = make(chan jetstream.KeyValueEntry, len(r.old)+1)
	for _, e := range append(slices.Clone(r.old), nil) {
		r.updates <- e
	}
	close(r.updates)
	return r, nil
}

func (r *replica) Updates() <-chan jetstream.KeyValueEntry { return r.updates }

// now returns a replica that will stay as the bucket is.
func now(t *testing.T, kv jetstream.KeyValue) *jetstream.KeyValue {
	t.Helper()
	lagging := &replica{KeyValue: kv}
	if err := eachEntry(t.Context(), kv,
		func(e jetstream.KeyValueEntry) { lagging.old = append(lagging.old, e) }); err != nil {
		t.Fatal(err)
	}
	return new(jetstream.KeyValue(lagging))
}

// A replica that lags behind neither hides a tag nor keeps its refills from their IDs, and no ID comes twice.
func TestTagsFromAReplicaThatLags(t *testing.T) {
	t.Parallel()
	store := newStore(t, natskit.Start(t))
	kv := *store.kv.Load()
	empty := now(t, kv)
	createAll(t, store, "order")
	created := now(t, kv)
	store.kv.Store(empty)
	if g, err := store.Reserve(t.Context(), "order", 1, 0); err != nil || g.First != 1 {
		t.Errorf("a tag that the replica does not have yet: %+v, %v", g, err)
	}
	store.kv.Store(created)
	if g, err := store.Reserve(t.Context(), "order", 1, 0); !errors.Is(err, allocator.ErrConflict) {
		t.Errorf("a reservation from an old record: %+v, %v", g, err)
	}
	g, err := store.Reserve(t.Context(), "order", 1, 0)
	for tries := 0; errors.Is(err, allocator.ErrConflict) &&
		tries < 10; tries++ { // a slow machine may take longer than racedFor
		g, err = store.Reserve(t.Context(), "order", 1, 0)
	}
	if err != nil || g.First != 11 {
		t.Errorf("a reservation after a conflict: %+v, %v", g, err)
	}
}

// How far a tag is claimed is asked of the leader of the bucket, and so is what is stored: it must not seem to be
// behind
// its own claims. Any replica answers a direct read, also one that lags behind.
func TestClaimedAsksTheLeader(t *testing.T) {
	t.Parallel()
	store := newStore(t, natskit.Start(t))
	createAll(t, store, "order")
	asked := make(chan *nats.Msg, 100)
	sub, err := store.cfg.Conn.ChanSubscribe("$JS.API.DIRECT.>", asked)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := store.Claimed(t.Context(), "order"); err != nil || e.End != 1 {
		t.Errorf("%+v, %v", e, err)
	}
	if stored, err := store.Stored(t.Context(), "order", 1); err != nil || stored.MaxID != 1 {
		t.Errorf("%+v, %v", stored, err)
	}
	if err := errors.Join(store.cfg.Conn.Flush(), sub.Unsubscribe()); err != nil {
		t.Fatal(err)
	}
	for len(asked) > 0 {
		if m := <-asked; strings.Contains(m.Subject, streamOf(bus.BucketTags)) {
			t.Errorf("%s: a replica may answer that", m.Subject)
		}
	}
}

// The leader of the bucket has later records of workers: a time that a generator has reserved since must not seem to be
// unclaimed, nor a worker to be there that was deleted.
func TestWorkersFromAReplicaThatLags(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	w, kv := NewWorkers(newConfig(t, s)), workersBucket(t, s)
	moved, err := w.Add(t.Context(), holder(1000), only(5))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Add(t.Context(), holder(1000), only(6)); err != nil {
		t.Fatal(err)
	}
	before := now(t, kv)
	moved.ReservedUntil = 9000
	if moved.Version, err = w.Put(t.Context(), moved.Record, moved.Version); err != nil {
		t.Fatal(err)
	}
	if err := kv.Delete(t.Context(), "6"); err != nil {
		t.Fatal(err)
	}
	added, err := w.Add(t.Context(), holder(1000), only(7))
	if err != nil {
		t.Fatal(err)
	}
	w.kv.Store(before)
	if got, err := w.List(t.Context()); err != nil || !slices.Equal(got, []snowflake.Entry{moved, added}) {
		t.Errorf("List: %+v, %v; want %+v and %+v", got, err, moved, added)
	}
}
