package generator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
)

// As long as a generator is cut off, and for a while after it, it does not know
// what the others hold.
func TestSettled(t *testing.T) {
	g := &Generator{presence: newPresence("me"), cfg: Config{Conn: new(nats.Conn)}}
	g.identity.Store(&Identity{})
	now := time.Unix(1_700_000_000, 0)
	want := func(after time.Duration, want bool) {
		t.Helper()
		if got := g.settled(now.Add(after)); got != want {
			t.Errorf("after %v: settled %v, want %v", after, got, want)
		}
	}
	want(0, true)
	g.isolation.begin()
	want(time.Hour, false)
	g.isolation.end(now, 0)
	want(0, false)
	want(beatExpires-1, false)
	want(beatExpires, true)

	// Before it has joined: beside generators of another installation it will be refused.
	g.identity.Store(nil)
	g.cfg.Installation = "own"
	later := now.Add(time.Hour)
	g.presence.hear(later, 0, wire.Encode(beat{Node: "a", ID: "1", Identity: Identity{Installation: "own"}}))
	want(time.Hour, true)
	g.presence.hear(later, 0, wire.Encode(beat{Node: "b", ID: "2", Identity: Identity{Installation: "other"}}))
	want(time.Hour, false)
}

// Nor does it release a worker meanwhile: another may hold it.
func TestReleaseUnsettled(t *testing.T) {
	entry := snowflake.Entry{Version: 1, Record: snowflake.Record{Node: "n", Incarnation: "x", ReservedUntil: 1_700_000_000_000}}
	g := New(Config{Conn: new(nats.Conn), Snowflake: snowflake.Config{Layout: snowflake.DefaultLayout()}})
	g.identity.Store(&Identity{})
	req := bus.WorkerRelease{Node: "n", ReservedUntil: utc(entry.ReservedUntil)}
	now := entry.ReservedUntil - time.Minute.Milliseconds()
	if err := g.keepsWorker(req, entry, now); err != nil {
		t.Errorf("settled: %v", err)
	}
	g.isolation.begin()
	if err := g.keepsWorker(req, entry, now); toError(err).Reason != bus.NoWorkerID {
		t.Errorf("cut off: %v, want %s", err, bus.NoWorkerID)
	}
}

// Who does not wait any more takes nothing when the isolation is over.
func TestWaitingInIsolationEnds(t *testing.T) {
	g := &Generator{cfg: Config{MaxWait: time.Hour}}
	g.isolation.begin()
	g.isolation.waiting.Add(1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if ids, err := (rejoining{g, 1}).Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", ids, err)
	}
	if n := g.isolation.waiting.Load(); n != 0 {
		t.Errorf("%d still wait", n)
	}
}

// A request waits for the end of the isolation, and then for snowflakes: for no longer than MaxWait in all.
func TestWaitingInIsolationIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = time.Second
		g := &Generator{cfg: Config{MaxWait: most, Installation: "i"}}
		g.flakes = snowflake.New(snowflake.Config{Layout: snowflake.DefaultLayout(), MaxWait: most})
		g.isolation.begin()
		g.isolation.waiting.Add(1)
		time.AfterFunc(most*9/10, func() { g.isolation.end(time.Now(), 0) })
		began := time.Now()
		_, err := rejoining{g, 1}.Wait(t.Context())
		if took := time.Since(began); !errors.Is(err, snowflake.ErrTimedOut) || took != most {
			t.Errorf("%v after %v, want %v after %v", err, took, snowflake.ErrTimedOut, most)
		}
	})
}
