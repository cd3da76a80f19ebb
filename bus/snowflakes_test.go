package bus_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
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
	p, err := snowflake.DefaultLayout().Decode(id, math.MaxInt64)
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

func newRegistry(r snowflake.Registry) *registry {
	counting := &registry{}
	counting.Registry = snowflaketest.NewFaulty(r, func() snowflaketest.Fault {
		counting.calls.Add(1)
		if counting.away.Load() {
			return snowflaketest.NotDone
		}
		return snowflaketest.None
	})
	return counting
}

func TestSnowflakes(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	nc := connect(t, s)
	c := newClock()
	start(t, s, "n", memory(t), func(cfg *bus.Config) {
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
		ranges, err := bus.ParseReply([]byte(reply))
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
	s := newServer(t)
	nc := connect(t, s)
	c := newClock()
	const skew = 3 * time.Second
	start(t, s, "n", memory(t), func(cfg *bus.Config) {
		on(c, snowflaketest.NewMemory())(cfg)
		cfg.Snowflake.MaxClockSkew = skew
	})
	layout := snowflake.DefaultLayout()
	at := func(ms int64) int64 { return layout.Compose(snowflake.Parts{UnixMS: ms, Worker: 1023, Sequence: 4095}) }
	for _, ms := range []int64{layout.Epoch, c.now(), c.now() + skew.Milliseconds()} { // the others' clocks may be ahead
		id := at(ms)
		want := fmt.Sprintf(`{"id":"%d","time":"%s","unix_ms":%d,"worker":1023,"sequence":4095}`,
			id, time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z"), ms)
		if body, code := ask(t, nc, "leaf.decode", fmt.Sprintf(" %d\n", id)); code != "" || body != want {
			t.Errorf("%d: code %q, %s; want %s", id, code, body, want)
		}
	}
	for _, bad := range []string{"", "x", "0", "-1", "1.0", "9223372036854775808", strconv.FormatInt(at(c.now()+skew.Milliseconds()+1), 10)} {
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

// A generator for which no worker is left leaves snowflakes to those that have
// one, as long as there are any.
func TestNoWorkerLeft(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	nc := connect(t, s)
	c := newClock()
	shared := snowflaketest.NewMemory()
	only := func(r snowflake.Registry) func(*bus.Config) {
		return func(cfg *bus.Config) {
			on(c, r)(cfg)
			cfg.Snowflake.LastWorker = 0
		}
	}
	a := start(t, s, "a", memory(t), only(shared))
	second := newRegistry(shared)
	start(t, s, "b", memory(t), only(second))

	eventually(t, "it leaves the queue group", func() bool { return strings.Join(serving(t, nc), " ") == "a" })
	for range 50 {
		flake(t, nc)
	}
	b, _ := state(t, nc, "b")
	if b.Ready || b.Worker != nil || strings.Join(b.Missing, " ") != "worker" || !strings.Contains(b.Reasons["worker"], "0 by a until") {
		t.Errorf("the state is %+v", b)
	}
	// Nor is it asked for its clock: who has no worker issues no time.
	_, asked := state(t, nc, "b")
	clocks := survey(t, nc, "leaf.clock")
	eventually(t, "it has heard of the clocks", func() bool {
		_, n := state(t, nc, "b")
		return n > asked
	})
	msg, err := clocks.NextMsg(patience)
	if want := fmt.Sprintf(`{"node":"a","worker":0,"unix_ms":%d}`, c.now()); err != nil || string(msg.Data) != want {
		t.Errorf("the clock is %v, %v; want %s", msg, err, want)
	}
	if n, _, err := clocks.Pending(); n > 0 || err != nil {
		t.Errorf("%d more clocks, %v", n, err)
	}

	second.away.Store(true)
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	eventually(t, "it is back, alone, and says why", func() bool {
		body, code := ask(t, nc, "leaf.snowflake", "")
		return code == "503" && strings.Contains(body, `"reason":"no_worker_id"`)
	})
	if body, code := ask(t, nc, "leaf.admin.workers.list", ""); code != "503" || !strings.Contains(body, `"reason":"no_worker_id"`) {
		t.Errorf("the workers of a registry that is away: code %q, %s", code, body)
	}
}

// What a running generator says that it holds counts, whatever the registry
// says: it may have been restored from a backup.
func TestWorkerClaimedByAnother(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	nc := connect(t, s)
	beats, err := nc.SubscribeSync("leaf.internal.presence")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	claim := func(worker int64) error {
		return nc.Publish(beats.Subject, fmt.Appendf(nil, `{"node":"clone","id":"1","worker":%d}`, worker))
	}
	c := newClock()
	records := snowflaketest.NewMemory()
	r := newRegistry(records)
	start(t, s, "n", memory(t), func(cfg *bus.Config) {
		on(c, r)(cfg)
		cfg.Join = func(context.Context) (bus.Identity, error) {
			for _, then := range []func() error{
				func() error { return claim(0) }, // after its first beat
				func() error { return nil },      // after the claim
				func() error { return nil },      // after its greeting: it has heard the claim
			} {
				_, err := beats.NextMsg(patience)
				if err := errors.Join(err, then()); err != nil {
					return bus.Identity{}, err
				}
			}
			return bus.Identity{}, nil
		}
	})
	if p := flake(t, nc); p.Worker != 1 {
		t.Errorf("it took worker %d, want 1: the other says that it has 0", p.Worker)
	}
	stream := events(t, nc)

	// It looks after its own at once when another claims it, not only with its
	// next report.
	const times, reports = 5, 3 * time.Second
	began := time.Now()
	for range times {
		calls := r.calls.Load()
		if err := claim(1); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it looks after its worker", func() bool { return r.calls.Load() > calls })
	}
	if took := time.Since(began); took > (times-2)*reports {
		t.Errorf("it looked %d times in %v: with its reports", times, took)
	}
	held := records.Snapshot()[1].ReservedUntil
	records.Wipe()
	if err := claim(1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has another worker", func() bool {
		c.pass(time.Millisecond) // it leaves what is left of this one
		body, code := ask(t, nc, "leaf.snowflake", "")
		return code == "" && parts(t, body).Worker != 1
	})
	wantEvent(t, stream, "alert", "leaf.worker.lost", "1", workerEvent(1, held))
	wantEvent(t, stream, "info", "leaf.worker.recovered", "1", `{"node":"n","worker":1,"episode":"lost"}`)
}

func workerEvent(worker, until int64) string {
	return fmt.Sprintf(`{"node":"n","worker":%d,"registry":"memory","reserved_until_ms":%d}`, worker, until)
}

func TestWorkerEvents(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	nc := connect(t, s)
	c := newClock()
	records := snowflaketest.NewMemory()
	r := newRegistry(records)
	g := start(t, s, "n", memory(t), func(cfg *bus.Config) {
		on(c, r)(cfg)
		// Its reports come after a quarter of this.
		cfg.Snowflake.Reserve, cfg.Snowflake.Grace = snowflake.LeastReserve, 500*time.Millisecond
		cfg.Snowflake.FirstWorker = 5
	})
	stream := events(t, nc)
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
	s := newServer(t)
	nc := connect(t, s)
	c := newClock()
	const left = 100 * 24 * time.Hour
	layout := snowflake.DefaultLayout()
	layout.TimeBits, layout.SequenceBits = layout.TimeBits-1, layout.SequenceBits+1 // so that it begins after 1970
	layout.Epoch = c.now() + left.Milliseconds() - 1<<layout.TimeBits
	start(t, s, "n", memory(t), func(cfg *bus.Config) {
		on(c, snowflaketest.NewMemory())(cfg)
		cfg.Snowflake.Layout = layout
	})
	wantEvent(t, events(t, nc), "alert", "leaf.worker.ending", "0", fmt.Sprintf(`{"node":"n","worker":0,"end_ms":%d}`, layout.End()))
	c.pass(left)
	if body, code := ask(t, nc, "leaf.snowflake", ""); code != "507" || !strings.Contains(body, `"reason":"exhausted"`) {
		t.Errorf("code %q: %s", code, body)
	}
}

func TestWorkersList(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	nc := connect(t, s)
	client := bus.NewClient(nc)
	c := newClock()
	records := snowflaketest.NewMemory()
	var want []bus.Worker
	ms := func(n int64) time.Time { return time.UnixMilli(n).UTC() }
	for n := range int64(3) {
		_, err := records.Add(t.Context(), snowflake.Record{Node: "old", Incarnation: strconv.FormatInt(n, 10), Acquired: 1000 + n, Reported: 2000 + n, ReservedUntil: math.MaxInt32},
			snowflake.Choice{First: 2 * n, Last: 2 * n})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, bus.Worker{Worker: 2 * n, Node: "old", Acquired: ms(1000 + n), Reported: ms(2000 + n), ReservedUntil: ms(math.MaxInt32)})
	}
	for _, node := range []string{"a", "b"} {
		start(t, s, node, memory(t), func(cfg *bus.Config) {
			on(c, records)(cfg)
			cfg.Snowflake.FirstWorker = 10
		})
	}
	for n, node := range []string{"a", "b"} {
		r := records.Snapshot()[10+int64(n)]
		want = append(want, bus.Worker{Worker: r.Worker, Node: node, Running: true, Acquired: ms(c.now()), Reported: ms(c.now()), ReservedUntil: ms(r.ReservedUntil)})
	}
	list := func(limit int) (all []bus.Worker) {
		t.Helper()
		for req := (bus.WorkersRequest{Limit: limit}); ; {
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
	end := time.Now().Add(patience)
	for row := 0; row < 20 && time.Now().Before(end); row++ {
		if fmt.Sprint(list(0)) != fmt.Sprint(want) {
			row = 0
		}
	}
	for _, limit := range []int{0, 1, 2, 4, 5, 1000} {
		for range 10 { // whoever answers
			if got := list(limit); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("with limit %d: %v, want %v", limit, got, want)
			}
		}
	}
	if page, err := client.Workers(t.Context(), bus.WorkersRequest{From: 12}); err != nil || page.Workers == nil || len(page.Workers) > 0 {
		t.Errorf("from beyond the last: %+v, %v", page, err)
	}
	for _, bad := range []string{`{"limit":1001}`, `{"limit":-1}`, `{"after":"x"}`, "x"} {
		if body, code := ask(t, nc, "leaf.admin.workers.list", bad); code != "400" {
			t.Errorf("%s: code %q, %s", bad, code, body)
		}
	}
	if body, _ := ask(t, nc, "leaf.admin.workers.list", `{"limit":1}`); body !=
		`{"registry":"memory","workers":[{"worker":0,"node":"old","running":false,"acquired":"1970-01-01T00:00:01Z","reported":"1970-01-01T00:00:02Z","reserved_until":"1970-01-25T20:31:23.647Z"}],"next":2}` {
		t.Errorf("the page is %s", body)
	}
}

// A registry may be another installation's until this one's was joined.
func TestNotJoined(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		installation string
		served       bool
	}{
		"new":       {"", false},
		"restarted": {"mine", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			nc := connect(t, s)
			records := snowflaketest.NewMemory()
			disk := snowflaketest.NewDisk()
			join := func(context.Context) (bus.Identity, error) { return bus.Identity{Installation: "mine"}, nil }
			first := start(t, s, "n", memory(t), func(cfg *bus.Config) {
				cfg.Join, cfg.Installation = join, "mine"
				cfg.Snowflake.Registry, cfg.Snowflake.File = records, newFile(t, disk)
			})
			last := flake(t, nc)
			if err := first.stop(); err != nil {
				t.Fatal(err)
			}

			before := records.Snapshot()[0]
			r := newRegistry(records)
			joining := make(chan struct{})
			start(t, s, "n", memory(t), func(cfg *bus.Config) {
				cfg.Snowflake.Registry, cfg.Snowflake.File = r, newFile(t, disk.Kill())
				cfg.Installation = c.installation
				cfg.Join = func(ctx context.Context) (bus.Identity, error) {
					select {
					case <-joining:
						return join(ctx)
					case <-ctx.Done():
						return bus.Identity{}, ctx.Err()
					}
				}
			})
			if c.served {
				eventually(t, "it issues from its file", func() bool {
					body, code := ask(t, nc, "leaf.snowflake", "")
					if code != "" {
						return false
					}
					if p := parts(t, body); p.Worker != last.Worker || p.UnixMS <= last.UnixMS {
						t.Errorf("%+v after %+v", p, last)
					}
					return true
				})
			} else if body, code := ask(t, nc, "leaf.snowflake", ""); code != "503" || !strings.Contains(body, `"reason":"no_worker_id"`) {
				t.Errorf("code %q: %s", code, body)
			}
			if body, code := ask(t, nc, "leaf.admin.workers.list", ""); code != "503" || !strings.Contains(body, `"reason":"no_worker_id"`) {
				t.Errorf("the workers of a registry that may be another's: code %q, %s", code, body)
			}
			if n := r.calls.Load(); n > 0 {
				t.Errorf("the registry was asked %d times before the installation was joined", n)
			}

			close(joining)
			eventually(t, "the registry knows of the start", func() bool {
				return records.Snapshot()[0].Incarnation != before.Incarnation
			})
			eventually(t, "it issues", func() bool {
				body, code := ask(t, nc, "leaf.snowflake", "")
				return code == "" && parts(t, body).Worker == 0
			})
		})
	}
}

// The requests that the connection has when the end comes get IDs, and the next
// start may begin right after them.
func TestDrainSnowflakes(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	nc := connect(t, s)
	c := newClock()
	file := newFile(t, snowflaketest.NewDisk())
	g := start(t, s, "n", memory(t), func(cfg *bus.Config) {
		cfg.Snowflake.File = file
		cfg.Snowflake.Clock = func() snowflake.Reading {
			time.Sleep(200 * time.Microsecond) // so that requests queue up
			return c.read()
		}
	})
	replies, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	const requests = 1000
	for range requests {
		if err := nc.PublishRequest("leaf.snowflake", replies.Subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := g.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	var ids allocatortest.Checker
	for i := range requests {
		msg, err := replies.NextMsg(patience)
		if err != nil {
			t.Fatalf("%d of %d requests were answered: %v", i, requests, err)
		}
		ranges, err := bus.ParseReply(msg.Data)
		if err != nil {
			t.Fatalf("%s: %v", msg.Data, err)
		}
		ids.Add(ranges...)
	}
	if n, err := ids.Check(); n != requests || err != nil {
		t.Errorf("%d IDs, %v", n, err)
	}
	if saved, ok := file.Saved(); !ok || saved.Ceiling != c.now()+1 {
		t.Errorf("the file says that all before %d is used, want %d", saved.Ceiling, c.now()+1)
	}
}

func TestDrainWaitingSnowflakes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		timeout time.Duration
		want    string // the reply's beginning
	}{
		"what waits is served":               {patience, ""},
		"what waits for too long is told so": {time.Millisecond, `{"code":503,"reason":"draining"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			nc := connect(t, s)
			now := newClock()
			g := start(t, s, "n", memory(t), func(cfg *bus.Config) {
				on(now, snowflaketest.NewMemory())(cfg)
				cfg.DrainTimeout = c.timeout
			})
			replies, err := nc.SubscribeSync(nc.NewInbox())
			if err != nil {
				t.Fatal(err)
			}
			// More than a millisecond has, while time stands still.
			if err := nc.PublishRequest("leaf.snowflake", replies.Subject, []byte("5000")); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it waits", func() bool {
				s, _ := state(t, nc, "n")
				return s.Counts.Waiting == 1
			})
			stopped := make(chan error, 1)
			go func() { stopped <- g.stop() }()
			if c.want == "" {
				eventually(t, "it has left the queue group", func() bool { return len(serving(t, nc)) == 0 })
				now.pass(10 * time.Millisecond)
			}
			msg, err := replies.NextMsg(patience)
			if err != nil {
				t.Fatal(err)
			}
			if ranges, err := bus.ParseReply(msg.Data); (err == nil) != (c.want == "") || !strings.HasPrefix(string(msg.Data), c.want) {
				t.Errorf("the answer is %.100s, %v, %v", msg.Data, ranges, err)
			}
			if err := <-stopped; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

// sparse is a store that grants single IDs, far apart.
type sparse struct{ allocator.Store }

func (s sparse) Reserve(ctx context.Context, tag string, _ int64) (allocator.Grant, error) {
	g, err := s.Store.Reserve(ctx, tag, 2)
	g.Last = g.First
	return g, err
}

// What NATS cannot carry in one message is an error, not silence.
func TestReplyTooLarge(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(config, []byte("max_payload: 4096"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := embedded.Start(embedded.Config{Listen: "127.0.0.1:0", ConfigFile: config, StoreDir: t.TempDir(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	nc := connect(t, s)
	start(t, s, "n", sparse{memory(t, "order")}, func(cfg *bus.Config) { cfg.MaxWait = patience })
	for subject, n := range map[string]int64{"leaf.segment.order": 200, "leaf.snowflake": 200 * 4096} {
		body, code := ask(t, nc, subject, fmt.Sprintf(`{"count":%d}`, n))
		if code != "413" || !strings.Contains(body, `"reason":"batch_too_large"`) {
			t.Errorf("%s: code %q, %.100s", subject, code, body)
		}
		if body, code := ask(t, nc, subject, `{"count":10}`); code != "" {
			t.Errorf("%s, with fewer: code %s, %s", subject, code, body)
		}
	}
}
