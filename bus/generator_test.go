package bus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// patience bounds the waits of these tests. It is no measure of speed.
const patience = 20 * time.Second

// TestMain finds goroutines that are left. A stream that nats-server makes in the
// moment in which it ends leaves two of its store's, whatever asked for it.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
	)
}

// quiet is a log for those who do not read it.
var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func newServer(t *testing.T) *embedded.Server {
	s, err := embedded.Start(embedded.Config{Listen: "127.0.0.1:0", StoreDir: t.TempDir(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func connect(t *testing.T, s *embedded.Server) *nats.Conn {
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// running is a generator that runs; stop ends it and returns what Run did.
type running struct {
	*bus.Generator
	node string
	conn *nats.Conn
	stop func() error
	done chan error // what Run did, for whoever asks first
}

// ended tells what Run did, when it has ended by itself.
func (r *running) ended() <-chan error { return r.done }

// start runs a generator on store until the test ends.
func start(t *testing.T, s *embedded.Server, node string, store allocator.Store, change func(*bus.Config)) *running {
	t.Helper()
	r, ready := begin(t, s, node, store, change)
	select {
	case <-ready:
	case err := <-r.done:
		r.done <- err
		t.Fatalf("%s did not start: %v", node, err)
	case <-time.After(patience):
		t.Fatalf("%s did not get ready", node)
	}
	return r
}

// begin is start without waiting until it is ready.
func begin(t *testing.T, s *embedded.Server, node string, store allocator.Store, change func(*bus.Config)) (r *running, ready <-chan struct{}) {
	t.Helper()
	nc := connect(t, s)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	state := kvstore.Config{Conn: nc, JS: js, Log: quiet}
	cfg := bus.Config{
		Conn: nc, JS: js, Store: store, Node: node, Log: quiet, Release: "test",
		Join:         func(context.Context) (bus.Identity, error) { return bus.Identity{}, nil },
		Open:         func(context.Context) error { return nil },
		OpenEvents:   func(ctx context.Context) error { return kvstore.OpenEvents(ctx, state, 1<<20) },
		MaxStep:      allocator.DefaultMaxStep,
		MaxWait:      200 * time.Millisecond,
		DrainTimeout: patience,
		Ready:        func() { close(started) },
		Snowflake: snowflake.Config{
			Layout: snowflake.DefaultLayout(), Registry: snowflaketest.NewMemory(), File: newFile(t, snowflaketest.NewDisk()),
			LastWorker: snowflake.DefaultLayout().Workers() - 1,
		},
		RegistryKind: "memory",
	}
	if change != nil {
		change(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	g := bus.NewGenerator(cfg)
	go func() { ended <- g.Run(ctx) }()
	r = &running{Generator: g, node: node, conn: nc, done: ended}
	r.stop = sync.OnceValue(func() error {
		cancel()
		err := <-ended
		ended <- err // for those who ask again
		return err
	})
	t.Cleanup(func() { r.stop() })
	return r, started
}

func newFile(t *testing.T, disk snowflake.Disk) *snowflake.File {
	t.Helper()
	f, err := snowflake.NewFile(disk)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func memory(t *testing.T, tags ...string) *allocatortest.Memory {
	m := allocatortest.NewMemory()
	for _, tag := range tags {
		if _, err := m.Create(t.Context(), allocator.Tag{Name: tag, MaxID: 1, Step: 10}); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// ask sends one request and returns the reply's body and its code, if any.
func ask(t *testing.T, nc *nats.Conn, subject, body string) (reply, code string) {
	t.Helper()
	msg, err := nc.Request(subject, []byte(body), patience)
	if errors.Is(err, nats.ErrNoResponders) {
		return "", "no responders"
	}
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	return string(msg.Data), msg.Header.Get("Nats-Service-Error-Code")
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		if ok() {
			return
		}
	}
	t.Fatalf("it did not happen that %s", what)
}

// switched is a store that can be taken away.
type switched struct {
	allocator.Store
	away atomic.Bool
}

func (s *switched) Reserve(ctx context.Context, tag string, n int64) (allocator.Grant, error) {
	if s.away.Load() {
		return allocator.Grant{}, errors.New("unplugged")
	}
	return s.Store.Reserve(ctx, tag, n)
}

// events collects what the stream keeps.
func events(t *testing.T, nc *nats.Conn) (list func(what string) []bus.Event) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all []bus.Event
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	eventually(t, "the stream is there", func() bool {
		_, err := js.Stream(ctx, bus.EventStream)
		return err == nil
	})
	go func() {
		defer close(done)
		for e, err := range bus.NewClient(nc).Events(ctx, bus.Since(time.Now().Add(-time.Hour))) {
			if err != nil {
				t.Errorf("following: %v", err)
				continue
			}
			mu.Lock()
			all = append(all, e)
			mu.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return func(what string) (found []bus.Event) {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range all {
			if e.Type == what {
				found = append(found, e)
			}
		}
		return found
	}
}

// What still waits when the drain's time is over is told so.
func TestDrainTimeout(t *testing.T) {
	s := newServer(t)
	nc := connect(t, s)
	g := start(t, s, "n", &slow{Store: memory(t, "order"), tokens: make(chan struct{})}, func(c *bus.Config) {
		c.MaxWait, c.DrainTimeout = patience, time.Millisecond
	})
	replies, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest("leaf.segment.order", replies.Subject, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the request waits", func() bool {
		states, err := bus.NewClient(nc).States(t.Context())
		return err == nil && len(states) == 1 && states[0].Counts.Waiting == 1
	})
	if err := g.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	msg, err := replies.NextMsg(patience)
	if err != nil || !strings.Contains(string(msg.Data), `"reason":"draining"`) {
		t.Errorf("the answer is %v, %v; want draining", msg, err)
	}
}

// A store that is not there must not hold back the start, and what comes later
// is served.
func TestStoreComesLater(t *testing.T) {
	s := newServer(t)
	nc := connect(t, s)
	var there atomic.Bool
	store := &switched{Store: memory(t)}
	store.away.Store(true)
	start(t, s, "n", store, func(c *bus.Config) {
		c.Tags = []allocator.Tag{{Name: "order", Step: 10}}
		c.Open = func(context.Context) error {
			if !there.Load() {
				return errors.New("not there yet")
			}
			store.away.Store(false)
			return nil
		}
	})
	if _, code := ask(t, nc, "leaf.segment.order", ""); code != "503" && code != "504" {
		t.Errorf("without a store: code %s", code)
	}
	there.Store(true)
	eventually(t, "it serves", func() bool { // maybe not from 1 on: what it reserves while it makes the tag it gives up
		_, code := ask(t, nc, "leaf.segment.order", "")
		return code == ""
	})
}

func TestRefusedToStart(t *testing.T) {
	s := newServer(t)
	nc := connect(t, s)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	watching, err := jetstream.New(connect(t, s)) // Run closes the other connection
	if err != nil {
		t.Fatal(err)
	}
	if err := kvstore.OpenEvents(t.Context(), kvstore.Config{Conn: nc, JS: js, Log: quiet}, 1<<20); err != nil {
		t.Fatal(err)
	}
	stream, err := watching.Stream(t.Context(), bus.EventStream)
	if err != nil {
		t.Fatal(err)
	}
	err = bus.NewGenerator(bus.Config{
		Conn: nc, JS: js, Store: memory(t), Node: "n", Log: quiet,
		Join:       func(context.Context) (bus.Identity, error) { return bus.Identity{}, allocator.ErrRefused },
		OpenEvents: func(context.Context) error { return nil },
		Snowflake:  snowflake.Config{Layout: snowflake.DefaultLayout(), Registry: snowflaketest.NewMemory()},
		Ready:      func() { t.Error("a refused generator is ready") },
	}).Run(t.Context())
	if !errors.Is(err, allocator.ErrRefused) {
		t.Errorf("Run: %v, want %v", err, allocator.ErrRefused)
	}
	about, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := about.State.Msgs; n != 0 {
		t.Errorf("a generator that did not start told %d events", n)
	}
}

// The state is the data of one endpoint; the others have none, not even null.
func TestStateOnOneEndpoint(t *testing.T) {
	s := newServer(t)
	nc := connect(t, s)
	start(t, s, "n", memory(t), nil)
	body, _ := ask(t, nc, "$SRV.STATS.leaf", "")
	if n := strings.Count(body, `"data":`); n != 1 || !strings.Contains(body, `"data":{"node":"n"`) {
		t.Errorf("%d endpoints have data: %s", n, body)
	}
}

// What one generator reserved is evidence for another: also from the stream,
// for one that starts later.
func TestWitness(t *testing.T) {
	s := newServer(t)
	nc := connect(t, s)
	first := memory(t, "order")
	start(t, s, "first", first, nil)
	stream := events(t, nc)
	if _, code := ask(t, nc, "leaf.segment.order", "500"); code != "" {
		t.Fatalf("code %s", code)
	}
	eventually(t, "the refill is in the stream", func() bool { return len(stream("leaf.segment.refill")) > 0 })

	// The second has a store that went backwards: as a stale replica would be.
	stale := start(t, s, "stale", memory(t, "order"), nil)
	page, err := stale.conn.Request("leaf.admin.buffers", nil, patience)
	if err != nil || len(page.Data) == 0 {
		t.Fatalf("%v", err)
	}
	eventually(t, "the stale one refuses", func() bool {
		body, code := ask(t, nc, "leaf.segment.order", "")
		return code == "503" && strings.Contains(body, `"reason":"store_regressed"`)
	})
	eventually(t, "the alert is in the stream", func() bool { return len(stream("leaf.segment.regressed")) == 1 })
	var body struct{ Got, Seen bus.ID }
	if err := json.Unmarshal(stream("leaf.segment.regressed")[0].Data, &body); err != nil || body.Got != 1 || body.Seen < 501 {
		t.Errorf("the alert says %+v, %v", body, err)
	}
}

// What one reserves the others know at once, also while its events wait for a stream that is away.
func TestWitnessWithoutStream(t *testing.T) {
	s := newServer(t)
	noStream := func(c *bus.Config) {
		c.OpenEvents = func(context.Context) error { return errors.New("away") }
	}
	first := start(t, s, "first", memory(t, "order"), noStream)
	stale := start(t, s, "stale", memory(t, "order"), noStream)
	if _, err := first.Take(t.Context(), "order", 500); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the one whose store went backwards refuses", func() bool {
		_, err := stale.Take(t.Context(), "order", 1)
		e, ok := errors.AsType[*bus.Error](err)
		return ok && e.Reason == bus.StoreRegressed
	})
}

// An operator's max_id is in force at every generator when the reply comes.
func TestMaxIDMovesEverywhere(t *testing.T) {
	s := newServer(t)
	nc := connect(t, s)
	store := memory(t, "order")

	for _, node := range []string{"a", "b", "c"} {
		start(t, s, node, store, nil)
	}
	for range 30 {
		ask(t, nc, "leaf.segment.order", "")
	}
	if body, code := ask(t, nc, "leaf.admin.tags.update", `{"tag":"order","max_id":"70000"}`); code != "" {
		t.Fatalf("code %s: %s", code, body)
	}
	for range 60 {
		body, code := ask(t, nc, "leaf.segment.order", "")
		if ranges, err := bus.ParseReply([]byte(body)); code != "" || err != nil || ranges[0].First < 70000 {
			t.Fatalf("after max_id was moved to 70000: %q, code %q", body, code)
		}
	}
}

// Two of one name are told apart by nobody who looks at events and metrics: it is said.
func TestNamesakes(t *testing.T) {
	s := newServer(t)
	log := new(lines)
	start(t, s, "n", memory(t), func(c *bus.Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
	start(t, s, "other", memory(t), nil)
	start(t, s, "n", memory(t), nil)
	eventually(t, "the log says so", func() bool { return log.count("has this one's name") == 1 })
}

// Who is not told of a deletion in time is named, and what is true by then.
func TestDeleteIsNotConfirmed(t *testing.T) {
	s := newServer(t)
	nc := connect(t, s)
	start(t, s, "n", memory(t, "order"), nil)
	deaf := `{"node":"deaf","id":"x","unix_ms":1}` // it never answers
	beats := time.NewTicker(time.Second)
	defer beats.Stop()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			nc.Publish("leaf.internal.presence", []byte(deaf))
			select {
			case <-beats.C:
			case <-ended:
				return
			}
		}
	}()
	eventually(t, "it is heard", func() bool {
		_, err := bus.NewClient(nc).CreateTag(t.Context(), bus.TagCreate{Tag: "new"})
		return errors.Is(err, bus.TimedOut) && strings.Contains(err.Error(), "[deaf] did not confirm") && strings.Contains(err.Error(), "nothing is created: repeat")
	})
	_, err := bus.NewClient(nc).DeleteTag(t.Context(), "order")
	if !errors.Is(err, bus.TimedOut) || !strings.Contains(err.Error(), "[deaf] did not confirm") || !strings.Contains(err.Error(), "it is deleted") || strings.Contains(err.Error(), "repeat") {
		t.Errorf("DeleteTag: %v", err)
	}
}

// The default step is not refused for being above the largest.
func TestDefaultStep(t *testing.T) {
	for largest, want := range map[int64]string{10: `"step":10,`, 0: `"step":1000,`} { // 0 is the default
		s := newServer(t)
		nc := connect(t, s)
		start(t, s, "n", memory(t), func(c *bus.Config) { c.MaxStep = largest })
		body, code := ask(t, nc, "leaf.admin.tags.create", `{"tag":"order"}`)
		if code != "" || !strings.Contains(body, want) {
			t.Errorf("largest step %d: code %q: %s", largest, code, body)
		}
	}
}

// Two installations must not answer the same callers: the younger one's
// generators end, whichever came first.
func TestOlderInstallationStays(t *testing.T) {
	then := time.Now().Add(-time.Hour)
	of := func(id string, created time.Time) func(*bus.Config) {
		return func(c *bus.Config) {
			c.Join = func(context.Context) (bus.Identity, error) {
				return bus.Identity{Installation: id, Created: created}, nil
			}
		}
	}
	for name, younger := range map[string]func(*bus.Config){
		"by its age": of("A", then.Add(time.Minute)),
		"by its ID":  of("C", then),
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			nc := connect(t, s)
			shared := memory(t, "order")
			first := start(t, s, "first", shared, younger)
			start(t, s, "same", shared, younger)
			if _, code := ask(t, nc, "leaf.segment.order", ""); code != "" {
				t.Fatalf("two of one installation: code %s", code)
			}
			if _, err := first.Take(t.Context(), "order", 1); err != nil { // and so it has more in memory
				t.Fatal(err)
			}
			start(t, s, "older", memory(t, "order"), of("B", then))
			select {
			case err := <-first.ended():
				first.done <- err
				if !errors.Is(err, allocator.ErrRefused) || !strings.Contains(err.Error(), "older") {
					t.Errorf("Run: %v; want it refused, and the node named", err)
				}
			case <-time.After(patience):
				t.Error("the younger installation goes on")
			}
			if ids, err := first.Take(t.Context(), "order", 1); err == nil {
				t.Errorf("it gives %v to those in its process", ids)
			}
			eventually(t, "only the older one is there", func() bool {
				states, err := bus.NewClient(nc).States(t.Context())
				return err == nil && len(states) == 1 && states[0].Node == "older"
			})
		})
	}
}

// damaged is a store with one record that cannot be read.
type damaged struct{ allocator.Store }

func (s damaged) Get(ctx context.Context, tag string) (allocator.Tag, error) {
	if tag == "bad" {
		return allocator.Tag{}, allocator.ErrDamaged
	}
	return s.Store.Get(ctx, tag)
}

// One tag that cannot be read must not keep the others from being served.
func TestDamagedTagAtTheStart(t *testing.T) {
	s := newServer(t)
	nc := connect(t, s)
	start(t, s, "n", damaged{memory(t)}, func(c *bus.Config) {
		c.Tags = []allocator.Tag{{Name: "bad", Step: 10}, {Name: "order", Step: 10}}
	})
	eventually(t, "the other tag is served", func() bool {
		_, code := ask(t, nc, "leaf.segment.order", "")
		return code == ""
	})
}

// A stream that keeps the requests is the trap that costs IDs: it is said.
func TestStreamOverRequests(t *testing.T) {
	s := newServer(t)
	nc := connect(t, s)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	said := func(node string) string {
		var log bytes.Buffer
		g := start(t, s, node, memory(t), func(c *bus.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		if err := g.stop(); err != nil {
			t.Fatal(err)
		}
		return log.String()
	}
	if log := said("before"); strings.Contains(log, "ERROR") {
		t.Errorf("without such a stream: %s", log)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "MINE", Subjects: []string{"leaf.segment.order"}}); err != nil {
		t.Fatal(err)
	}
	if log := said("after"); !strings.Contains(log, "stream=MINE") {
		t.Errorf("nothing is said of the stream: %s", log)
	}
}
