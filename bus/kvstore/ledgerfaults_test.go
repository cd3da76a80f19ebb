package kvstore

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/fresh"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/proxy"
)

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
	return Config{Conn: nc, JS: js, Log: testkit.Quiet}
}

// A write that arrives after its sender gave up changes nothing if another generator wrote meanwhile.
// Otherwise it may still be done: the sender must not take it for refused.
func TestLateWrite(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	p, err := proxy.Start(strings.TrimPrefix(s.ClientURL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	late, other := openLedger(t, connect(t, "nats://"+p.Addr())), openLedger(t, newConfig(t, s))
	raise(t, other, "order", 11)
	writesLate := func(end int64) {
		t.Helper()
		e, err := late.Read(t.Context(), "order")
		if err != nil {
			t.Fatal(err)
		}
		ctx, giveUp := context.WithCancel(testkit.Context(t))
		defer giveUp()
		p.Hang(true)
		p.OnRequest(func([]byte) proxy.Action {
			giveUp() // it is sent, and the proxy holds it
			return proxy.Forward
		})
		defer p.OnRequest(nil)
		e.End = end
		if _, err := late.Write(ctx, "order", e); !errors.Is(err, allocator.ErrUnavailable) || errors.Is(err, allocator.ErrConflict) {
			t.Errorf("a write without an answer: %v", err)
		}
	}
	writesLate(21)
	raise(t, other, "order", 5001)
	p.Hang(false)
	testkit.Eventually(t, "the connection works again", func() bool { return endOf(t, late) == 5001 })
	writesLate(6001)
	p.Hang(false)
	// The stream takes the writes of one connection in their order.
	testkit.Eventually(t, "a late write that nobody was ahead of is done", func() bool { return endOf(t, late) == 6001 })
	if e, err := late.Read(t.Context(), "order"); err != nil || e.Revision != 4 {
		t.Errorf("the record is %+v, %v; want the fourth that was written", e, err)
	}
}

// slowStore calls before in each Reserve.
type slowStore struct {
	allocator.Store
	before func()
}

func (s slowStore) Reserve(ctx context.Context, tag string, n, from int64) (allocator.Grant, error) {
	s.before()
	return s.Store.Reserve(ctx, tag, n, from)
}

// After the files of the bucket were restored, its revisions start from a lower number: one that was read before may come
// again, with another record. A claim that began before must not write over that.
func TestLedgerFilesRestored(t *testing.T) {
	t.Parallel()
	cfg := embedded.Config{StoreDir: t.TempDir(), Listen: testkit.FreeAddress(t)}
	s := natskit.StartWith(t, cfg)
	bucket := openLedger(t, connect(t, s.ClientURL()))
	raise(t, bucket, "order", 11)
	backup := t.TempDir()
	restart := func(change func() error) {
		s.Close()
		if err := change(); err != nil {
			t.Error(err)
		}
		s = natskit.StartWith(t, cfg)
	}
	restart(func() error { return os.CopyFS(backup, os.DirFS(cfg.StoreDir)) })
	testkit.Eventually(t, "the connection is back", func() bool { return endOf(t, bucket) == 11 })
	raise(t, bucket, "order", 21)
	before, err := bucket.Read(t.Context(), "order")
	if err != nil {
		t.Fatal(err)
	}

	store := allocatortest.NewMemory()
	if _, err := store.Create(t.Context(), allocator.Tag{Name: "order", MaxID: 21, Step: 10}); err != nil {
		t.Fatal(err)
	}
	claims := allocator.WithLedger(slowStore{store, func() {
		began := time.Now()
		restart(func() error {
			return errors.Join(os.RemoveAll(cfg.StoreDir), os.CopyFS(cfg.StoreDir, os.DirFS(backup)))
		})
		other := openLedger(t, connect(t, s.ClientURL()))
		raise(t, other, "order", 5001)
		if now, err := other.Read(t.Context(), "order"); err != nil || now.Revision != before.Revision {
			t.Errorf("the record is %+v, %v; want the revision of %+v, or this test shows nothing", now, err, before)
		}
		testkit.Eventually(t, "a standstill of a second", func() bool { return time.Since(began) > 1100*time.Millisecond })
	}}, bucket, allocator.NewMarks(), "")
	if g, err := claims.Reserve(testkit.Context(t), "order", 1, 0); !errors.Is(err, allocator.ErrConflict) {
		t.Errorf("a claim across the restore: %v, %v", g.Range, err)
	}
	if end := endOf(t, bucket); end != 5001 {
		t.Errorf("the record's end is %d", end)
	}
}

// endOf is the end of the tag order; 0: it cannot be read.
func endOf(tb testing.TB, b *LedgerBucket) int64 {
	ctx, cancel := context.WithTimeout(tb.Context(), time.Second)
	defer cancel()
	e, _ := b.Read(ctx, "order")
	return e.End
}

// In a cluster only the leader answers a read: while there is none, nothing is read, and so nothing is reserved.
// When the stream was created, by which a bucket that was made again is recognised, stays the same.
func TestLedgerLeader(t *testing.T) {
	t.Parallel()
	servers := startCluster(t, 3)
	cfg := connect(t, servers[0].ClientURL())
	b := openReplicated(t, cfg)
	raise(t, b, "order", 11)
	leader := func() string {
		for ctx := testkit.Context(t); ; {
			attempt, cancel := context.WithTimeout(ctx, time.Second)
			info, err := cfg.JS.Stream(attempt, streamOf(bus.BucketLedger))
			cancel()
			if err == nil && info.CachedInfo().Cluster.Leader != "" {
				if now := info.CachedInfo().Created; !now.Equal(b.Created) {
					t.Fatalf("%s says that the stream was created at %v; it was at %v", info.CachedInfo().Cluster.Leader, now, b.Created)
				}
				return info.CachedInfo().Cluster.Leader
			}
			if ctx.Err() != nil {
				t.Fatalf("the stream has no leader: %v", err)
			}
		}
	}
	led := make(map[string]bool)
	for led[leader()] = true; len(led) < 2; led[leader()] = true {
		// Nobody answers while there is no leader.
		_, _ = cfg.Conn.Request("$JS.API.STREAM.LEADER.STEPDOWN."+streamOf(bus.BucketLedger), nil, time.Second)
	}

	last := leader()
	var follower *member
	for _, m := range servers {
		if m.Name() != last {
			follower = m
		}
	}
	alone := openLedger(t, connect(t, follower.ClientURL()))
	for _, m := range servers {
		if m != follower {
			m.stop()
		}
	}
	time.Sleep(fresh.For) // a record that was read just now may be claimed on
	claims := allocator.WithLedger(slowStore{allocatortest.NewMemory(), func() { t.Error("it reserved without the ledger") }}, alone, allocator.NewMarks(), "")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := claims.Reserve(ctx, "order", 1, 1); !errors.Is(err, allocator.ErrUnavailable) {
		t.Errorf("Reserve while there is no leader: %v", err)
	}

	follower.stop()
	for _, m := range servers {
		m.start(t)
	}
	for _, m := range servers {
		testkit.Eventually(t, m.Name()+" is back", func() bool { return m.ReadyForConnections(time.Second) })
	}
	b = openReplicated(t, connect(t, servers[1].ClientURL()))
	if leader(); endOf(t, b) != 11 {
		t.Errorf("after a restart of all servers the end is %d", endOf(t, b))
	}
}

// openReplicated opens the ledger of a cluster that may just be forming.
func openReplicated(t *testing.T, cfg Config) *LedgerBucket {
	t.Helper()
	for ctx := testkit.Context(t); ; {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		b, err := OpenLedger(attempt, cfg)
		if err == nil {
			_, err = b.Read(attempt, "order") // a new stream may not have a leader yet
		}
		cancel()
		if err == nil {
			return b
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}
