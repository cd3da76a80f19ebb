package kvstore

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

func TestWorkersConformance(t *testing.T) {
	t.Parallel()
	snowflaketest.Run(t, func(tb testing.TB) snowflaketest.Backend {
		s := natskit.Start(tb)
		return snowflaketest.Backend{
			Open: func(tb testing.TB) snowflake.Registry { return NewWorkers(newConfig(tb, s)) },
			Save: func(tb testing.TB) func() { return saveBucket(tb, newConfig(tb, s), bus.BucketWorkers) },
			Wipe: func(tb testing.TB) {
				if err := newConfig(tb, s).JS.DeleteKeyValue(context.Background(), bus.BucketWorkers); err != nil {
					tb.Fatalf("wiping: %v", err)
				}
			},
		}
	})
}

func workersBucket(t *testing.T, s *embedded.Server) jetstream.KeyValue {
	t.Helper()
	kv, err := openBucket(t.Context(), newConfig(t, s), bus.BucketWorkers, "")
	if err != nil {
		t.Fatal(err)
	}
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
	for name, remove := range map[string]func(context.Context, string, ...jetstream.KVDeleteOpt) error{"delete": kv.Delete, "purge": kv.Purge} {
		if err := remove(t.Context(), "7"); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Put(t.Context(), e.Record, e.Version); !errors.Is(err, snowflake.ErrConflict) {
			t.Errorf("%s: Put: %v, want %v", name, err, snowflake.ErrConflict)
		}
		if got, err := w.List(t.Context()); err != nil || len(got) != 0 {
			t.Errorf("%s: List: %+v, %v", name, got, err)
		}
		if e, err = w.Add(t.Context(), holder(0), only(7)); err != nil {
			t.Fatalf("%s: Add: %v", name, err)
		}
		if e.Version, err = w.Put(t.Context(), e.Record, e.Version); err != nil {
			t.Errorf("%s: Put: %v", name, err)
		}
	}
	if log.Len() > 0 {
		t.Errorf("the log takes the mark of a deletion for a record: %s", log.String())
	}
}

// A bucket that is deleted costs one call, and the next makes it anew.
func TestWorkersBucketDeleted(t *testing.T) {
	cfg := newConfig(t, natskit.Start(t))
	w := NewWorkers(cfg)
	for name, c := range map[string]struct {
		call func() error
		next error // of the call after that
	}{
		"List": {func() error { _, err := w.List(t.Context()); return err }, nil},
		"Add":  {func() error { _, err := w.Add(t.Context(), holder(0), only(8)); return err }, nil},
		"Put":  {func() error { _, err := w.Put(t.Context(), holder(7), 1); return err }, snowflake.ErrConflict},
	} {
		if _, err := w.Add(t.Context(), holder(0), only(7)); err != nil {
			t.Fatal(err)
		}
		if err := cfg.JS.DeleteKeyValue(t.Context(), bus.BucketWorkers); err != nil {
			t.Fatal(err)
		}
		if err := c.call(); err == nil || errors.Is(err, snowflake.ErrConflict) || errors.Is(err, snowflake.ErrFull) {
			t.Errorf("%s without a bucket: %v", name, err)
		}
		err := c.call()
		for removing(err) {
			err = c.call()
		}
		if !errors.Is(err, c.next) {
			t.Errorf("%s, the next one: %v, want %v", name, err, c.next)
		}
		status, err := cfg.JS.KeyValue(t.Context(), bus.BucketWorkers)
		if err != nil {
			t.Fatalf("%s: the bucket is missing: %v", name, err)
		}
		if err := status.Purge(t.Context(), "7"); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever happens to the server, a call ends with its context.
func TestWorkersServerAway(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	w := NewWorkers(newConfig(t, s))
	e, err := w.Add(t.Context(), holder(0), only(7))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	for name, call := range map[string]func(context.Context) error{
		"List": func(ctx context.Context) error { _, err := w.List(ctx); return err },
		"Add":  func(ctx context.Context) error { _, err := w.Add(ctx, holder(0), only(8)); return err },
		"Put":  func(ctx context.Context) error { _, err := w.Put(ctx, e.Record, e.Version); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		ended := make(chan error, 1)
		go func() { ended <- call(ctx) }()
		select {
		case err := <-ended:
			if err == nil || errors.Is(err, snowflake.ErrConflict) || errors.Is(err, snowflake.ErrFull) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(4 * time.Second): // less than any time limit of the library
			t.Errorf("%s went on without its context", name)
		}
		cancel()
	}
}
