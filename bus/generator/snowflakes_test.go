package generator_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// flake asks for one snowflake, which must come, and takes it apart.
func flake(t *testing.T, nc *nats.Conn) snowflake.Parts {
	t.Helper()
	body, code := ask(t, nc, "leaf.snowflake", "")
	if code != "" {
		t.Fatalf("code %s: %s", code, body)
	}
	return parts(t, body)
}

func parts(t *testing.T, text string) snowflake.Parts {
	t.Helper()
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	p, err := snowflake.DefaultLayout().Decode(id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// registry is one that can be taken away, and counts what it is asked.
type registry struct {
	snowflake.Registry
	away  atomic.Bool
	calls atomic.Int64
}

func newRegistry(r snowflake.Registry) *registry { return &registry{Registry: r} }

func (r *registry) asked() error {
	r.calls.Add(1)
	if r.away.Load() {
		return errors.New("the registry is away")
	}
	return nil
}

func (r *registry) List(ctx context.Context) ([]snowflake.Entry, error) {
	if err := r.asked(); err != nil {
		return nil, err
	}
	return r.Registry.List(ctx)
}

func (r *registry) Add(ctx context.Context, rec snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
	if err := r.asked(); err != nil {
		return snowflake.Entry{}, err
	}
	return r.Registry.Add(ctx, rec, c)
}

func (r *registry) Put(ctx context.Context, rec snowflake.Record, version uint64) (uint64, error) {
	if err := r.asked(); err != nil {
		return 0, err
	}
	return r.Registry.Put(ctx, rec, version)
}

func TestSnowflakes(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	c := newClock()
	start(t, s, "n", memory(t), func(cfg *generator.Config) {
		on(c, snowflaketest.NewMemory())(cfg)
		cfg.MaxBatch = 1000
	})
	client := bus.NewClient(nc)

	one := flake(t, nc)
	if one.UnixMS != c.now() || one.Worker != 0 {
		t.Errorf("%+v at %d", one, c.now())
	}
	var all allocatortest.Checker
	for _, body := range []string{"1", " 7\n", "1000"} {
		reply, _ := ask(t, nc, "leaf.snowflake", body)
		ranges, err := wire.ParseReply([]byte(reply))
		if err != nil {
			t.Errorf("%q: %v", body, err)
		}
		all.Add(ranges...)
	}
	for body, n := range map[string]int64{"{}": 1, `{"count":100}`: 100} {
		reply, _ := ask(t, nc, "leaf.snowflake", body)
		var first, last bus.ID
		if _, err := fmt.Sscanf(reply, fmt.Sprintf(`{"count":%d,"ranges":[{"first":"%%d","last":"%%d"}]}`, n), &first, &last); err != nil {
			t.Errorf("%s: %s, %v", body, reply, err)
		}
		all.Add(bus.Range{First: int64(first), Last: int64(last)})
	}
	ranges, err := client.Snowflakes(t.Context(), 50)
	if err != nil {
		t.Fatal(err)
	}
	all.Add(ranges...)
	if ids, err := all.Check(); ids != 1+7+100+1+1000+50 || err != nil {
		t.Errorf("%d IDs, %v", ids, err)
	}
	for body, want := range map[string]string{"0": "400", "x": "400", `{"n":1}`: "400", "1001": "413"} {
		if reply, code := ask(t, nc, "leaf.snowflake", body); code != want {
			t.Errorf("%q: code %q, want %s: %s", body, code, want, reply)
		}
	}
	if _, err := client.Snowflakes(t.Context(), 1001); !errors.Is(err, bus.BatchTooLarge) {
		t.Errorf("%v, want %v", err, bus.BatchTooLarge)
	}
	// Nobody would get these: not even a sequence number is used up.
	before := flake(t, nc)
	for range 5 {
		if err := nc.Publish("leaf.snowflake", []byte("3")); err != nil {
			t.Fatal(err)
		}
	}
	if after := flake(t, nc); after.Sequence != before.Sequence+1 {
		t.Errorf("%+v, then %+v", before, after)
	}
}

func TestDecodeSnowflake(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	c := newClock()
	start(t, s, "n", memory(t), on(c, snowflaketest.NewMemory()))
	layout := snowflake.DefaultLayout()
	at := func(ms int64) int64 { return layout.Compose(snowflake.Parts{UnixMS: ms, Worker: 1023, Sequence: 4095}) }
	for _, ms := range []int64{layout.Epoch, c.now(), c.now() + time.Hour.Milliseconds()} { // its clock may be slow
		id := at(ms)
		want := fmt.Sprintf(`{"id":"%d","time":"%s","unix_ms":%d,"worker":1023,"sequence":4095}`,
			id, time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z"), ms)
		if body, code := ask(t, nc, "leaf.decode", fmt.Sprintf(" %d\n", id)); code != "" || body != want {
			t.Errorf("%d: code %q, %s; want %s", id, code, body, want)
		}
	}
	for _, bad := range []string{"", "x", "0", "-1", "1.0", "9223372036854775808"} {
		if body, code := ask(t, nc, "leaf.decode", bad); code != "400" || !strings.Contains(body, `"reason":"bad_request"`) {
			t.Errorf("%q: code %q, %s", bad, code, body)
		}
	}

	client := bus.NewClient(nc)
	if d, err := client.Decode(t.Context(), at(c.now())); err != nil || d.UnixMS != c.now() || d.Worker != 1023 || int64(d.ID) != at(c.now()) {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := client.Decode(t.Context(), -1); !errors.Is(err, bus.BadRequest) {
		t.Errorf("%v, want %v", err, bus.BadRequest)
	}
}

func workerEvent(worker, until int64) string {
	return fmt.Sprintf(`{"node":"n","worker":%d,"registry":"memory","reserved_until_ms":%d}`, worker, until)
}

func TestWorkerEvents(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	c := newClock()
	records := snowflaketest.NewMemory()
	r := newRegistry(records)
	g := start(t, s, "n", memory(t), func(cfg *generator.Config) {
		on(c, r)(cfg)
		// Its reports come after a quarter of this.
		cfg.Snowflake.Reserve, cfg.Snowflake.Grace = snowflake.LeastReserve, 500*time.Millisecond
		cfg.Snowflake.FirstWorker = 5
	})
	stream := eventsOn(t, nc)
	until := records.Snapshot()[5].ReservedUntil
	if until != c.now()+snowflake.LeastReserve.Milliseconds() {
		t.Errorf("reserved until %d at %d", until, c.now())
	}
	wantEvent(t, stream, "info", "leaf.worker.acquired", "5", workerEvent(5, until))

	r.away.Store(true)
	c.pass(700 * time.Millisecond)
	wantEvent(t, stream, "alert", "leaf.worker.expiring", "5", workerEvent(5, until))
	flake(t, nc) // it still serves
	c.pass(300 * time.Millisecond)
	if body, code := ask(t, nc, "leaf.snowflake", ""); code != "503" || !strings.Contains(body, `"reason":"no_worker_id"`) {
		t.Errorf("at the end of the reservation: code %q, %s", code, body)
	}
	r.away.Store(false)
	wantEvent(t, stream, "info", "leaf.worker.recovered", "5", `{"node":"n","worker":5,"episode":"expiring"}`)
	flake(t, nc)

	if err := g.stop(); err != nil {
		t.Error(err)
	}
	until = records.Snapshot()[5].ReservedUntil
	if want := c.now() + 1 + 500; until != want { // from the last ID on
		t.Errorf("after the end it stays reserved until %d, want %d", until, want)
	}
	wantEvent(t, stream, "info", "leaf.worker.released", "5", workerEvent(5, until))
}

// The end of a layout is said a year before, and is for good.
func TestLayoutEnds(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	c := newClock()
	const left = 100 * 24 * time.Hour
	layout := snowflake.DefaultLayout()
	layout.TimeBits, layout.SequenceBits = layout.TimeBits-1, layout.SequenceBits+1 // so that it begins after 1970
	layout.Epoch = c.now() + left.Milliseconds() - 1<<layout.TimeBits
	start(t, s, "n", memory(t), func(cfg *generator.Config) {
		on(c, snowflaketest.NewMemory())(cfg)
		cfg.Snowflake.Layout = layout
	})
	wantEvent(t, eventsOn(t, nc), "alert", "leaf.worker.ending", "0", fmt.Sprintf(`{"node":"n","worker":0,"end_ms":%d}`, layout.End()))
	c.pass(left)
	if body, code := ask(t, nc, "leaf.snowflake", ""); code != "507" || !strings.Contains(body, `"reason":"exhausted"`) {
		t.Errorf("code %q: %s", code, body)
	}
}

func TestWorkersList(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	client := admin.NewClient(nc)
	c := newClock()
	records := snowflaketest.NewMemory()
	var want []admin.Worker
	ms := func(n int64) time.Time { return time.UnixMilli(n).UTC() }
	for n := range int64(3) {
		_, err := records.Add(t.Context(), snowflake.Record{Node: "old", Incarnation: strconv.FormatInt(n, 10), Acquired: 1000 + n, Reported: 2000 + n, ReservedUntil: math.MaxInt32},
			snowflake.Choice{First: 2 * n, Last: 2 * n})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, admin.Worker{Worker: 2 * n, Node: "old", Acquired: ms(1000 + n), Reported: ms(2000 + n), ReservedUntil: ms(math.MaxInt32)})
	}
	for _, node := range []string{"a", "b"} {
		start(t, s, node, memory(t), func(cfg *generator.Config) {
			on(c, records)(cfg)
			cfg.Snowflake.FirstWorker = 10
		})
	}
	for n, node := range []string{"a", "b"} {
		r := records.Snapshot()[10+int64(n)]
		want = append(want, admin.Worker{Worker: r.Worker, Node: node, Running: true, Acquired: ms(c.now()), Reported: ms(c.now()), ReservedUntil: ms(r.ReservedUntil)})
	}
	list := func(limit int) (all []admin.Worker) {
		t.Helper()
		for req := (admin.WorkersRequest{Limit: limit}); ; {
			page, err := client.Workers(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if page.Registry != "memory" || limit > 0 && len(page.Workers) > limit {
				t.Fatalf("a page of %d: %+v", limit, page)
			}
			all = append(all, page.Workers...)
			if page.Next == 0 {
				return all
			}
			req.From = page.Next
		}
	}
	// Each must have heard which worker the other holds.
	end := time.Now().Add(testkit.Patience)
	for row := 0; row < 20 && time.Now().Before(end); row++ {
		if fmt.Sprint(list(0)) != fmt.Sprint(want) {
			row = 0
		}
	}
	for _, limit := range []int{1, 2, 5} {
		if got := list(limit); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("with limit %d: %v, want %v", limit, got, want)
		}
	}
	if page, err := client.Workers(t.Context(), admin.WorkersRequest{From: 12}); err != nil || page.Workers == nil || len(page.Workers) > 0 {
		t.Errorf("from beyond the last: %+v, %v", page, err)
	}
	for _, bad := range []string{`{"limit":1001}`, `{"from":1024}`, `{"limit":-1}`, `{"after":"x"}`, "x"} {
		if body, code := ask(t, nc, "leaf.admin.workers.list", bad); code != "400" {
			t.Errorf("%s: code %q, %s", bad, code, body)
		}
	}
	if body, _ := ask(t, nc, "leaf.admin.workers.list", `{"limit":1}`); body !=
		`{"registry":"memory","workers":[{"worker":0,"node":"old","running":false,"acquired":"1970-01-01T00:00:01Z","reported":"1970-01-01T00:00:02Z","reserved_until":"1970-01-25T20:31:23.647Z"}],"next":2,"layout":{"epoch":1288834974657,"time_bits":41,"worker_bits":10,"sequence_bits":12}}` {
		t.Errorf("the page is %s", body)
	}
}

// halved is a database of which another generator takes every second ID, and is faster.
type halved struct {
	allocator.Numbers
	records allocator.Records
}

func (h halved) Advance(ctx context.Context, tag string, _, step, from int64) (allocator.Range, int64, error) {
	r, step, err := h.Numbers.Advance(ctx, tag, 2, step, from)
	if err != nil {
		return r, step, err
	}
	s, err := h.records.Load(ctx, tag)
	var t allocator.Tag
	if err == nil {
		t, err = s.Claim(allocator.Claim{First: r.First, Last: r.First, Run: "other"})
	}
	if err == nil {
		_, err = h.records.Swap(ctx, t, s.Revision)
	}
	return allocator.Range{First: r.Last, Last: r.Last}, step, err
}

// What NATS cannot carry in one message is an error, not silence.
func TestReplyTooLarge(t *testing.T) {
	t.Parallel()
	s := natskit.StartWith(t, configured(t, "max_payload: 4096"))
	nc := natskit.Connect(t, s)
	records, numbers := memory(t, "order"), allocatortest.NewMemoryNumbers()
	numbers.SetRow(allocator.Row{Name: "order", MaxID: 1, Step: 1})
	start(t, s, "n", records, func(cfg *generator.Config) { cfg.MaxWait, cfg.Numbers = testkit.Patience, halved{numbers, records} })
	for subject, n := range map[string]int64{"leaf.segment.order": 150, "leaf.snowflake": 150 * 4096} {
		body, code := ask(t, nc, subject, fmt.Sprintf(`{"count":%d}`, n))
		if code != "413" || !strings.Contains(body, `"reason":"batch_too_large"`) {
			t.Errorf("%s: code %q, %.100s", subject, code, body)
		}
		if body, code := ask(t, nc, subject, "10"); code != "" || count(t, body) != 10 {
			t.Errorf("%s, with fewer: code %s, %s", subject, code, body)
		}
	}
}
