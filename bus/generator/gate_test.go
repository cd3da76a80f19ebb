package generator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/snowflake"
)

// Nor does it release a worker meanwhile: another may hold it.
func TestReleaseWhilePeersUnknown(t *testing.T) {
	t.Parallel()
	entry := snowflake.Entry{Version: 1, Record: snowflake.Record{Node: "n", Incarnation: "x", ReservedUntil: 1_700_000_000_000}}
	g := New(Config{Conn: new(nats.Conn), Snowflake: snowflake.Config{Layout: snowflake.DefaultLayout()}})
	g.membership.identity.Store(&Identity{})
	req := admin.WorkerRelease{Node: "n", ReservedUntil: utc(entry.ReservedUntil)}
	now := entry.ReservedUntil - time.Minute.Milliseconds()
	if err := g.workers.keeps(req, entry, now); err != nil {
		t.Errorf("known: %v", err)
	}
	g.guard.shut()
	if err := g.workers.keeps(req, entry, now); toError(err).Reason != bus.NoWorkerID {
		t.Errorf("cut off: %v, want %s", err, bus.NoWorkerID)
	}
}

// A request waits for the gate, and then for snowflakes: for at most MaxWait in all.
func TestHeldBackIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = time.Second
		flakes := snowflake.New(snowflake.Config{Layout: snowflake.DefaultLayout(), MaxWait: most})
		var g gate
		g.shut()
		w, err := g.hold(1, most, snowflake.ErrTimedOut, func(ctx context.Context) ([]bus.Range, error) { return flakes.Take(ctx, 1) })
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(most*9/10, func() { g.open(time.Now()) })
		began := time.Now()
		_, err = w.Wait(t.Context())
		if took := time.Since(began); !errors.Is(err, snowflake.ErrTimedOut) || took != most {
			t.Errorf("%v after %v, want that it timed out after %v", err, took, most)
		}
	})
}
