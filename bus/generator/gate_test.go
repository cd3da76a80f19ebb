package generator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
)

// As long as a generator is cut off, and for a while after it, it does not know
// what the others hold.
func TestPeersKnown(t *testing.T) {
	t.Parallel()
	g := &Generator{group: newGroup("me"), cfg: Config{Conn: new(nats.Conn)}}
	g.membership.identity.Store(&Identity{})
	now := time.Unix(1_700_000_000, 0)
	want := func(after time.Duration, want bool) {
		t.Helper()
		if got := g.peersKnown(now.Add(after)); got != want {
			t.Errorf("after %v: known %v, want %v", after, got, want)
		}
	}
	want(0, true)
	g.guard.shut()
	want(time.Hour, false)
	g.guard.open(now)
	want(0, false)
	want(heartbeatExpires-1, false)
	want(heartbeatExpires, true)

	// Before it has joined: beside generators of another installation it will be refused.
	g.membership.identity.Store(nil)
	g.cfg.Installation = "own"
	later := now.Add(time.Hour)
	g.group.hear(later, 0, wire.Encode(heartbeat{Node: "a", ID: "1", Identity: Identity{Installation: "own"}}))
	want(time.Hour, true)
	g.group.hear(later, 0, wire.Encode(heartbeat{Node: "b", ID: "2", Identity: Identity{Installation: "other"}}))
	want(time.Hour, false)
}

// Nor does it release a worker meanwhile: another may hold it.
func TestReleaseWhilePeersUnknown(t *testing.T) {
	t.Parallel()
	entry := snowflake.Entry{Version: 1, Record: snowflake.Record{Node: "n", Incarnation: "x", ReservedUntil: 1_700_000_000_000}}
	g := New(Config{Conn: new(nats.Conn), Snowflake: snowflake.Config{Layout: snowflake.DefaultLayout()}})
	g.membership.identity.Store(&Identity{})
	req := bus.WorkerRelease{Node: "n", ReservedUntil: utc(entry.ReservedUntil)}
	now := entry.ReservedUntil - time.Minute.Milliseconds()
	if err := g.keepsWorker(req, entry, now); err != nil {
		t.Errorf("known: %v", err)
	}
	g.guard.shut()
	if err := g.keepsWorker(req, entry, now); toError(err).Reason != bus.NoWorkerID {
		t.Errorf("cut off: %v, want %s", err, bus.NoWorkerID)
	}
}

// A request whose caller has gone takes nothing when the gate opens.
func TestHeldBackAndGone(t *testing.T) {
	t.Parallel()
	var g gate
	g.shut()
	w, err := g.hold(1, time.Hour, allocator.ErrTimedOut, func(context.Context) ([]bus.Range, error) {
		t.Error("it takes IDs")
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.hold(1, time.Hour, allocator.ErrTimedOut, nil); !errors.Is(err, allocator.ErrOverloaded) {
		t.Errorf("one more request: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if ids, err := w.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", ids, err)
	}
	if n := g.waiting.Load(); n != 0 {
		t.Errorf("%d still wait", n)
	}
	g.end(time.Now())
	if g.shut() || g.isShut.Load() {
		t.Error("it shuts after its end")
	}
}

// A request for a snowflake that times out at the gate says so, not that it waited for a segment.
func TestHeldBackSnowflakeSaysWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	g := New(Config{Conn: new(nats.Conn), Installation: "i", MaxWait: time.Millisecond, Snowflake: snowflake.Config{Layout: snowflake.DefaultLayout()}})
	g.guard.shut()
	_, w, err := g.snowflakes.request(Answer{}, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = w.Wait(t.Context()); !errors.Is(err, snowflake.ErrTimedOut) {
		t.Errorf("%v, want %v", err, snowflake.ErrTimedOut)
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

// The question for floors may take longer than requests wait for it: a store with a million tags
// would never answer.
func TestFloorsPatience(t *testing.T) {
	t.Parallel()
	f := newFloors()
	f.begin(time.Unix(1_700_000_000, 0), true)
	deadline := func() (end time.Time) {
		f.ask(t.Context(), func(ctx context.Context) error {
			end, _ = ctx.Deadline()
			return errors.New("no answer")
		})
		return end
	}
	now := time.Now()
	if end := deadline(); end.Before(now.Add(floorsWait)) || end.After(time.Now().Add(floorsWait)) {
		t.Errorf("requests wait for %v", end.Sub(now))
	}
	if f.isShut.Load() {
		t.Error("requests wait on")
	}
	now = time.Now()
	if end := deadline(); end.Before(now.Add(floorsPatience)) {
		t.Errorf("the store may take %v", end.Sub(now))
	}
}
