package kvstore

import (
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/snowflake"
)

// A replica that lags behind answers the watch with which the records are read. The leader of the bucket has later ones: a time that
// a generator has reserved since must not seem to be nobody's, nor a worker to be there that was deleted.
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
	replica := &slowBucket{KeyValue: kv, breaks: true}
	if err := eachEntry(t.Context(), kv, func(e jetstream.KeyValueEntry) { replica.has = append(replica.has, e) }); err != nil {
		t.Fatal(err)
	}
	replica.has = append(replica.has, nil)

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
	lagging := jetstream.KeyValue(replica)
	w.kv.Store(&lagging)
	if got, err := w.List(t.Context()); err != nil || !slices.Equal(got, []snowflake.Entry{moved, added}) {
		t.Errorf("List: %+v, %v; want %+v and %+v", got, err, moved, added)
	}
}
