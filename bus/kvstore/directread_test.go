package kvstore

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
)

// mirrored is a bucket whose direct reads are answered by a mirror that lags behind.
type mirrored struct {
	jetstream.KeyValue
	old jetstream.KeyValueEntry // nil: it has no record yet
}

func (m *mirrored) Get(context.Context, string) (jetstream.KeyValueEntry, error) {
	if m.old == nil {
		return nil, jetstream.ErrKeyNotFound
	}
	return m.old, nil
}

// A mirror of the bucket that lags behind neither hides a tag nor keeps its refills from their IDs.
func TestMirrorThatLagsBehind(t *testing.T) {
	t.Parallel()
	store := newStore(t, natskit.Start(t))
	createAll(t, store, "order")
	kv := *store.kv.Load()
	created, err := kv.Get(t.Context(), "order")
	if err != nil {
		t.Fatal(err)
	}
	lag := func(old jetstream.KeyValueEntry) {
		var lagging jetstream.KeyValue = &mirrored{kv, old}
		store.kv.Store(&lagging)
	}
	lag(nil)
	if g, err := store.Reserve(t.Context(), "order", 1, 0); err != nil || g.First != 1 {
		t.Errorf("a tag that the mirror does not have yet: %+v, %v", g, err)
	}
	lag(created) // from before that
	if _, err := store.Reserve(t.Context(), "order", 1, 0); !errors.Is(err, allocator.ErrConflict) {
		t.Errorf("a reservation from an old record: %v", err)
	}
	g, err := store.Reserve(t.Context(), "order", 1, 0)
	for tries := 0; errors.Is(err, allocator.ErrConflict) && tries < 10; tries++ { // a slow machine may take longer than racedFor
		g, err = store.Reserve(t.Context(), "order", 1, 0)
	}
	if err != nil || g.First != 11 {
		t.Errorf("a reservation after a conflict: %+v, %v", g, err)
	}
}

// A reservation is a direct read and a write where the bucket has one replica. A read by the API of JetStream takes much more work.
func TestReservationReadsDirectly(t *testing.T) {
	t.Parallel()
	store := newStore(t, natskit.Start(t))
	createAll(t, store, "order")
	asked := make(chan *nats.Msg, 100)
	sub, err := store.cfg.Conn.ChanSubscribe(">", asked)
	if err != nil {
		t.Fatal(err)
	}
	before := store.cfg.Conn.Stats().OutMsgs
	if _, err := store.Reserve(t.Context(), "order", 1, 0); err != nil {
		t.Fatal(err)
	}
	if sent := store.cfg.Conn.Stats().OutMsgs - before; sent != 2 {
		t.Errorf("%d requests", sent)
	}
	if err := errors.Join(store.cfg.Conn.Flush(), sub.Unsubscribe()); err != nil {
		t.Fatal(err)
	}
	direct, writes := 0, 0
	for len(asked) > 0 {
		switch m := <-asked; {
		case strings.HasPrefix(m.Subject, "$JS.API.DIRECT.GET.KV_LEAF_TAGS."):
			direct++
		case strings.HasPrefix(m.Subject, "$JS.API."):
			t.Errorf("%s: a request to the API", m.Subject)
		case m.Subject == subjectOf(bus.BucketTags)+"order":
			writes++
		}
	}
	if direct != 1 || writes != 1 {
		t.Errorf("%d direct reads, %d writes", direct, writes)
	}
}
