package kvstore

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
	"github.com/leafbus/leafbus/tests/kit"
)

func TestWorkersConformance(t *testing.T) {
	t.Parallel()
	snowflaketest.Run(t, func(tb testing.TB) snowflaketest.Backend {
		s := natskit.Start(tb)
		return snowflaketest.Backend{
			Open: func(tb testing.TB) snowflake.Registry { return NewWorkers(newConfig(tb, s)) },
			Save: func(tb testing.TB) func() { return saveBucket(tb, newConfig(tb, s), wire.BucketWorkers) },
			Wipe: func(tb testing.TB) {
				if err := newConfig(tb, s).JS.DeleteKeyValue(context.Background(), wire.BucketWorkers); err != nil {
					tb.Fatalf("wiping: %v", err)
				}
			},
		}
	})
}

func workersBucket(t *testing.T, s *embedded.Server) jetstream.KeyValue {
	t.Helper()
	cfg := newConfig(t, s)
	_, err := open(t.Context(), cfg, wire.BucketWorkers)
	kit.Must(t, err)
	kv, err := cfg.JS.KeyValue(t.Context(), wire.BucketWorkers)
	kit.Must(t, err)
	return kv
}

func holder(worker int64) snowflake.Record {
	return snowflake.Record{Worker: worker, Node: "a", Incarnation: "i", ReservedUntil: 1}
}

func only(worker int64) snowflake.Choice { return snowflake.Choice{First: worker, Last: worker} }

// Somebody deletes a worker's key with the nats CLI: its holder notices, and
// the worker can be taken again.
func TestWorkerDeletedByHand(t *testing.T) {
	s := natskit.Start(t)
	var log bytes.Buffer
	cfg := newConfig(t, s)
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	w, kv := NewWorkers(cfg), workersBucket(t, s)
	e, err := w.Add(t.Context(), holder(0), only(7))
	if err != nil {
		t.Fatal(err)
	}
	kit.Must(t, kv.Delete(t.Context(), "7"))
	if _, err := w.Put(t.Context(), e.Record, e.Version); !errors.Is(err, snowflake.ErrConflict) {
		t.Errorf("Put: %v, want %v", err, snowflake.ErrConflict)
	}
	if got, err := w.List(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("List: %+v, %v", got, err)
	}
	if e, err = w.Add(t.Context(), holder(0), only(7)); err != nil {
		t.Fatalf("Add: %v", err)
	}
	if _, err = w.Put(t.Context(), e.Record, e.Version); err != nil {
		t.Errorf("Put: %v", err)
	}
	if log.Len() > 0 {
		t.Errorf("the log takes the mark of a deletion for a record: %s", log.String())
	}
}

// A damaged record refuses its worker, and no other one. Nothing is written over it.
func TestDamagedRefuses(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	workers, kv := NewWorkers(newConfig(t, s)), workersBucket(t, s)
	good, err := workers.Add(t.Context(), holder(0), only(500))
	if err != nil {
		t.Fatal(err)
	}
	revision, err := kv.PutString(t.Context(), "7", damaged["worker"][3])
	if err != nil {
		t.Fatal(err)
	}
	if e, err := workers.Add(t.Context(), holder(0), only(7)); !errors.Is(err, snowflake.ErrFull) {
		t.Errorf("a damaged record was overwritten by %+v, %v", e, err)
	}
	if got, err := workers.List(t.Context()); err != nil || len(got) != 1 || got[0] != good {
		t.Errorf("List: %+v, %v; want %+v", got, err, good)
	}
	if e, err := kv.Get(t.Context(), "7"); err != nil || e.Revision() != revision {
		t.Errorf("the damaged record was changed: %v", err)
	}
}
