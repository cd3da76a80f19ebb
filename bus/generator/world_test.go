package generator_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// TestMain finds goroutines that are left.
func TestMain(m *testing.M) { testkit.Main(m) }

// running is a generator that runs; stop ends it and returns what Run did.
type running struct {
	*generator.Generator
	node string
	conn *nats.Conn
	stop func() error
	done chan error // what Run returned
}

// ended receives what Run returned, when the generator has ended by itself.
func (r *running) ended() <-chan error { return r.done }

// start runs a generator on records until the test ends.
func start(t *testing.T, s *embedded.Server, node string, records allocator.Records, change func(*generator.Config)) *running {
	t.Helper()
	r, ready := begin(t, s, node, records, change)
	select {
	case <-ready:
	case err := <-r.done:
		r.done <- err
		t.Fatalf("%s did not start: %v", node, err)
	case <-time.After(testkit.Patience):
		t.Fatalf("%s did not get ready", node)
	}
	return r
}

// begin is start without waiting until it is ready.
func begin(t *testing.T, s *embedded.Server, node string, records allocator.Records, change func(*generator.Config)) (r *running, ready <-chan struct{}) {
	t.Helper()
	next := new(generator.NextServer)
	nc := natskit.Connect(t, s, nats.ReconnectToServer(next.Pick), nats.MaxReconnects(-1))
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	state := kvstore.Config{JS: js, Log: testkit.Quiet}
	cfg := generator.Config{
		Conn: nc, NextServer: next, JS: js, Records: open(records), Keys: kvstore.NewKeys(state), Index: allocator.NewIndex(),
		Node: node, Log: testkit.Quiet,
		Join: func(context.Context, func(context.Context) error) (generator.Identity, error) {
			return generator.Identity{}, nil
		},
		Open:         func(context.Context) error { return nil },
		OpenEvents:   kvstore.Events{Config: state, MaxBytes: 1 << 20}.Open,
		MaxStep:      allocator.DefaultMaxStep,
		MaxWait:      testkit.Patience / 10, // longer than a slow moment of the machine
		DrainTimeout: testkit.Patience,
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
	g := generator.New(cfg)
	go func() { ended <- g.Run(ctx) }()
	r = &running{Generator: g, node: node, conn: nc, done: ended}
	r.stop = sync.OnceValue(func() error {
		cancel()
		err := <-ended
		ended <- err // for the next call
		return err
	})
	t.Cleanup(func() { r.stop() })
	return r, started
}

// configured is a NATS with this configuration.
func configured(t *testing.T, text string) embedded.Config {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return embedded.Config{ConfigFile: conf}
}

func newFile(t *testing.T, disk snowflake.Disk) *snowflake.File {
	t.Helper()
	f, err := snowflake.NewFile(disk)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// memory returns records with these tags, each with the step 10.
func memory(t *testing.T, tags ...string) *allocatortest.MemoryRecords {
	m := allocatortest.NewMemoryRecords()
	for _, tag := range tags {
		add(t, m, allocator.Tag{Name: tag, Step: 10})
	}
	return m
}

// add makes the record of a tag that begins at 1.
func add(t *testing.T, records allocator.Records, tag allocator.Tag) {
	t.Helper()
	tag.MaxID = 1
	if _, err := records.Swap(t.Context(), tag, 0); err != nil {
		t.Fatal(err)
	}
}

// open returns a handle of its own on records in memory, as each generator has it.
func open(r allocator.Records) allocator.Records {
	if m, ok := r.(*allocatortest.MemoryRecords); ok {
		return m.Open()
	}
	return r
}

// ask sends a request and returns the reply's body and its code, if any. It sends a change again that a generator
// refused because it was away: on a busy machine it may stand still.
func ask(t *testing.T, nc *nats.Conn, subject, body string) (reply, code string) {
	t.Helper()
	for end := time.Now().Add(testkit.Patience); ; {
		msg, stoodStill, err := request(nc, subject, body)
		if errors.Is(err, nats.ErrNoResponders) {
			return "", "no responders"
		}
		// A generator that stood still does not answer what waited meanwhile.
		if errors.Is(err, nats.ErrTimeout) && stoodStill && time.Now().Before(end) {
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		reply, code = string(msg.Data), msg.Header.Get("Nats-Service-Error-Code")
		if !strings.Contains(reply, "nothing was done, send it again") || time.Now().After(end) {
			return reply, code
		}
		time.Sleep(testkit.Patience / 400)
	}
}

// request sends a request once. stoodStill: while it waited, this process stood still for so long that a generator in it
// may have noticed.
func request(nc *nats.Conn, subject, body string) (msg *nats.Msg, stoodStill bool, err error) {
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, false, err
	}
	defer answers.Unsubscribe()
	err = nc.PublishRequest(subject, inbox, []byte(body))
	const step = 100 * time.Millisecond
	for end := time.Now().Add(testkit.Patience / 4); err == nil && msg == nil; {
		began := time.Now()
		msg, err = answers.NextMsg(step)
		stoodStill = stoodStill || time.Since(began) > 5*step
		if errors.Is(err, nats.ErrTimeout) && time.Now().Before(end) {
			err = nil
		}
	}
	return msg, stoodStill, err
}

// switched are records that can be taken away from one generator.
type switched struct {
	allocator.Records
	away atomic.Bool
}

func (s *switched) Load(ctx context.Context, tag string) (allocator.Stored, error) {
	if s.away.Load() {
		return allocator.Stored{}, errors.New("unplugged")
	}
	return s.Records.Load(ctx, tag)
}

func (s *switched) Swap(ctx context.Context, t allocator.Tag, revision uint64) (uint64, error) {
	if s.away.Load() {
		return 0, errors.New("unplugged")
	}
	return s.Records.Swap(ctx, t, revision)
}

// writing are records whose Swap is that of the test.
type writing struct {
	allocator.Records
	swap func(ctx context.Context, t allocator.Tag, revision uint64) (uint64, error)
}

func (w writing) Swap(ctx context.Context, t allocator.Tag, revision uint64) (uint64, error) {
	return w.swap(ctx, t, revision)
}

// taking are records of which each write first takes a token; closed: all may write.
func taking(r allocator.Records, tokens <-chan struct{}) writing {
	own := open(r)
	return writing{own, func(ctx context.Context, t allocator.Tag, revision uint64) (uint64, error) {
		select {
		case <-tokens:
			return own.Swap(ctx, t, revision)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}}
}

// eventsOn collects what the stream keeps.
func eventsOn(t *testing.T, nc *nats.Conn) (list func(what string) []events.Event) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all []events.Event
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	testkit.Eventually(t, "the stream is there", func() bool {
		_, err := js.Stream(ctx, events.Stream)
		return err == nil
	})
	go func() {
		defer close(done)
		for e, err := range events.Follow(ctx, js, events.Since(time.Now().Add(-time.Hour))) {
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
	return func(what string) (found []events.Event) {
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
