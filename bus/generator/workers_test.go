package generator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// releasing is a world in which workers are released: generators on one registry
// and one clock, which sees that no ID repeats.
type releasing struct {
	t       *testing.T
	s       *embedded.Server
	nc      *nats.Conn
	client  *admin.Client
	c       *clock
	records *snowflaketest.Memory
	ids     allocatortest.Checker
}

func newReleasing(t *testing.T) *releasing {
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	r := &releasing{t: t, s: s, nc: nc, client: admin.NewClient(nc), c: newClock(), records: snowflaketest.NewMemory()}
	t.Cleanup(func() {
		if _, err := r.ids.Check(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// start starts a generator that takes one of these workers.
func (r *releasing) start(node string, registry snowflake.Registry, file *snowflake.File, first, last int64, more ...func(*generator.Config)) *running {
	r.t.Helper()
	return start(r.t, r.s, node, memory(r.t), func(cfg *generator.Config) {
		on(r.c, registry)(cfg)
		cfg.Snowflake.FirstWorker, cfg.Snowflake.LastWorker = first, last
		cfg.Snowflake.Place = "inode of " + node
		if file != nil {
			cfg.Snowflake.File = file
		}
		for _, change := range more {
			change(cfg)
		}
	})
}

// killed lets a generator take and use the worker and leaves what one leaves
// that is killed: its record as it was, and its disk.
func (r *releasing) killed(node string, worker int64) *snowflaketest.Disk {
	r.t.Helper()
	registry, disk := newRegistry(r.records), snowflaketest.NewDisk()
	g := r.start(node, registry, newFile(r.t, disk), worker, worker)
	r.from(worker)
	registry.away.Store(true)
	left := disk.Kill()
	if err := g.stop(); err != nil {
		r.t.Fatal(err)
	}
	if e := r.records.Snapshot()[worker]; e.Node != node || e.ReservedUntil != e.Reported+time.Minute.Milliseconds() {
		r.t.Fatalf("it left %+v at %d", e, r.c.now())
	}
	return left
}

// from takes IDs until some come from the worker, and returns their first.
func (r *releasing) from(worker int64) (first snowflake.Parts) {
	r.t.Helper()
	testkit.Eventually(r.t, fmt.Sprintf("IDs come from worker %d", worker), func() bool {
		r.c.pass(time.Millisecond) // what is asked for may be more than one millisecond has
		body, code := ask(r.t, r.nc, "leaf.snowflake", "500")
		if code != "" {
			return false
		}
		ranges, err := wire.ParseReply([]byte(body))
		if err != nil {
			r.t.Fatal(err)
		}
		r.ids.Add(ranges...)
		first = parts(r.t, fmt.Sprint(ranges[0].First))
		return first.Worker == worker
	})
	return first
}

// listed is the worker as it is listed when it does not run any more.
func (r *releasing) listed(worker int64) (found admin.Worker) {
	r.t.Helper()
	testkit.Eventually(r.t, fmt.Sprintf("no heartbeat names worker %d", worker), func() bool {
		page, err := r.client.Workers(r.t.Context(), admin.WorkersRequest{From: worker, Limit: 1})
		if err != nil || len(page.Workers) != 1 || page.Workers[0].Worker != worker {
			r.t.Fatalf("%+v, %v", page, err)
		}
		found = page.Workers[0]
		return !found.Running
	})
	return found
}

// putting is a registry that does something in place of its writes.
type putting struct {
	snowflake.Registry
	puts atomic.Int64
	put  func(context.Context, snowflake.Record, uint64) (uint64, error)
}

func (p *putting) Put(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
	p.puts.Add(1)
	return p.put(ctx, r, version)
}

// The reply says what the registry answered to the write: it was not done, or its result is not known.
func TestReleaseMeetsTheRegistry(t *testing.T) {
	t.Parallel()
	r := newReleasing(t)
	admin := &putting{Registry: r.records}
	r.start("calm", r.records, nil, 1, 1, func(cfg *generator.Config) { cfg.Workers = admin })
	r.killed("dead", 0)
	w := r.listed(0)
	r.c.pass(10 * time.Second)

	admin.put = func(ctx context.Context, rec snowflake.Record, version uint64) (uint64, error) {
		now := r.records.Snapshot()[0]
		now.Incarnation = "another's" // another generator was faster
		if _, err := r.records.Put(ctx, now.Record, now.Version); err != nil {
			return 0, err
		}
		return r.records.Put(ctx, rec, version)
	}
	_, err := r.client.ReleaseWorker(t.Context(), release(w))
	if e, ok := errors.AsType[*bus.Error](err); !ok || e.Code != 409 || e.Reason != bus.Conflict || !strings.Contains(e.Message, "at this moment") {
		t.Errorf("another generator was faster: %v", err)
	}
	if now := r.records.Snapshot()[0]; now.Incarnation != "another's" || now.ReservedUntil != w.ReservedUntil.UnixMilli() {
		t.Errorf("the record is %+v", now)
	}

	admin.put = func(ctx context.Context, rec snowflake.Record, version uint64) (uint64, error) {
		_, err := r.records.Put(ctx, rec, version)
		return 0, errors.Join(errors.New("the answer is lost"), err)
	}
	_, err = r.client.ReleaseWorker(t.Context(), release(w))
	if e, ok := errors.AsType[*bus.Error](err); !ok || e.Code != 504 || !strings.Contains(e.Message, "not known") ||
		!strings.Contains(e.Message, "leaf workers") || !strings.Contains(e.Message, "the answer is lost") {
		t.Errorf("no answer: %v", err)
	}
	if now := r.records.Snapshot()[0]; now.ReservedUntil != r.c.now()+10_000 {
		t.Errorf("the record is %+v", now)
	}
	if n := admin.puts.Load(); n != 2 {
		t.Errorf("%d writes for two requests", n)
	}

	// Only a release that certainly happened is published.
	stream := eventsOn(t, r.nc)
	admin.put = r.records.Put
	if w, err = r.client.ReleaseWorker(t.Context(), release(r.listed(0))); err != nil {
		t.Fatal(err)
	}
	wantEvent(t, stream, "info", "leaf.worker.released", "0",
		fmt.Sprintf(`{"node":"calm","worker":0,"registry":"memory","reserved_until_ms":%d,"holder":"dead"}`, w.ReservedUntil.UnixMilli()))
	if found := stream("leaf.worker.released"); len(found) != 1 {
		t.Errorf("%d events of one release", len(found))
	}
}
