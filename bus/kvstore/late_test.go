package kvstore

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/tests/kit"
)

// writer is a generator that replaces one record by compare-and-set.
type writer struct {
	write func(context.Context) error // claims ten IDs, or a stretch of time
	end   func() int64                // how far the record is; 0: it cannot be read
}

// A write that arrives after its sender gave up changes nothing if another generator wrote meanwhile. Otherwise it may
// still be done. So its sender must take it neither for done nor for refused.
func TestLateWrite(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		open     func(*testing.T, Config) writer
		conflict error
	}{
		"claim":  {claims, allocator.ErrConflict},
		"worker": {puts, snowflake.ErrConflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natskit.Start(t)
			p := linkTo(t, s)
			other := c.open(t, newConfig(t, s))
			late := c.open(t, connect(t, "nats://"+p.Addr()))
			writesLate := func() {
				t.Helper()
				ctx, giveUp := context.WithCancel(testkit.Context(t))
				defer giveUp()
				p.OnRequest(func(request []byte) kit.Action {
					if bytes.Contains(request, []byte("HPUB $KV.")) {
						p.Hang(true) // it is sent, and the proxy holds it
						giveUp()
					}
					return kit.Forward
				})
				defer p.OnRequest(nil)
				if err := late.write(ctx); err == nil || errors.Is(err, c.conflict) {
					t.Errorf("a write without an answer: %v", err)
				}
			}
			before := other.end()
			writesLate()
			if err := other.write(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.Hang(false)
			// The stream takes the writes of one connection in their order.
			testkit.Eventually(t, "the connection works again", func() bool { return late.end() == before+10 })
			writesLate()
			p.Hang(false)
			testkit.Eventually(t, "a late write that nobody was ahead of is done",
				func() bool { return late.end() == before+20 })
			if err := other.write(t.Context()); err != nil && !errors.Is(err, c.conflict) {
				t.Errorf("the next write: %v", err)
			}
		})
	}
}

// connect returns a connection to this URL, which comes back soon after it was lost.
func connect(tb testing.TB, url string) Config {
	tb.Helper()
	nc, err := nats.Connect(url, nats.ReconnectWait(10*time.Millisecond), nats.MaxReconnects(-1))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatal(err)
	}
	return Config{JS: js, Log: testkit.Quiet}
}

func claims(t *testing.T, cfg Config) writer {
	r := openRecordsOf(t, cfg)
	end := func() int64 { // 0: it cannot be read
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s, _ := r.Load(ctx, "order")
		return s.MaxID
	}
	if end() == 0 {
		swap(t, r, trend("order", 1), 0)
	}
	return writer{write: func(ctx context.Context) error { _, err := claim(ctx, r, "order"); return err }, end: end}
}

func puts(t *testing.T, cfg Config) writer {
	w := NewWorkers(cfg)
	if _, err := w.Add(t.Context(), holder(7), only(7)); err != nil && !errors.Is(err, snowflake.ErrFull) {
		t.Fatal(err)
	}
	read := func(ctx context.Context) (e snowflake.Entry, err error) {
		all, err := w.List(ctx)
		if err == nil {
			e = all[0]
		}
		return e, err
	}
	return writer{
		write: func(ctx context.Context) error {
			e, err := read(ctx)
			if err == nil {
				e.ReservedUntil += 10
				_, err = w.Put(ctx, e.Record, e.Version)
			}
			return err
		},
		end: func() int64 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			e, _ := read(ctx)
			return e.ReservedUntil
		},
	}
}

// A bucket that is restored from a snapshot gives its revisions again. The holder of before must not overwrite the record
// of another generator that happens to have the same.
func TestRevisionAgain(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	cfg := newConfig(t, s)
	mine, other := NewWorkers(cfg), NewWorkers(newConfig(t, s))
	e, err := mine.Add(t.Context(), holder(0), only(7))
	kit.Must(t, err)
	restore := snapshot(t, s, wire.BucketWorkers)
	version, err := mine.Put(t.Context(), e.Record, e.Version)
	kit.Must(t, err)
	kit.Must(t, cfg.JS.DeleteKeyValue(t.Context(), wire.BucketWorkers))
	restore()
	stranger := e.Record
	stranger.Incarnation = "another"
	if again, err := other.Put(t.Context(), stranger, e.Version); err != nil || again != version {
		t.Fatalf("the version is %d, %v, not %d again: the test shows nothing", again, err, version)
	}
	if _, err := mine.Put(t.Context(), e.Record, version); !errors.Is(err, snowflake.ErrConflict) {
		t.Errorf("Put on the record of another generator: %v, want %v", err, snowflake.ErrConflict)
	}
}
