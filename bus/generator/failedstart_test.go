package generator_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// touched counts how often the store and the registry are asked.
type touched struct{ times atomic.Int64 }

type touchedStore struct {
	allocator.Store
	*touched
}

func (s touchedStore) Get(ctx context.Context, tag string) (allocator.Tag, error) {
	s.times.Add(1)
	return s.Store.Get(ctx, tag)
}

func (s touchedStore) Watch(ctx context.Context, f func(allocator.Tag)) error {
	s.times.Add(1)
	return s.Store.Watch(ctx, f)
}

type touchedRegistry struct {
	snowflake.Registry
	*touched
}

func (r touchedRegistry) List(ctx context.Context) ([]snowflake.Entry, error) {
	r.times.Add(1)
	return r.Registry.List(ctx)
}

// A generator that cannot hear the others must do nothing: it ends without having joined the
// installation, taken a worker or created a tag.
func TestStartThatCannotListen(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	err := os.WriteFile(conf, []byte(`authorization { users: [
		{user: all, password: p}
		{user: mute, password: p, permissions: {publish: {deny: ["leaf.internal.presence"]}}}
		{user: alone, password: p, permissions: {subscribe: {deny: ["leaf.internal.presence"]}}}
		{user: uninformed, password: p, permissions: {subscribe: {deny: ["leaf.internal.tag"]}}}
		{user: blind, password: p, permissions: {subscribe: {deny: ["leaf.internal.reserved"]}}}
	] }`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s := natskit.StartWith(t, embedded.Config{ConfigFile: conf, User: "all", Password: "p"})
	for user, want := range map[string]error{
		"all":  nats.ErrConnectionClosed,
		"mute": nats.ErrPermissionViolation, "alone": nats.ErrPermissionViolation, "uninformed": nats.ErrPermissionViolation,
		"blind": nats.ErrPermissionViolation,
	} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(user, "p"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
			if err != nil {
				t.Fatal(err)
			}
			js, err := jetstream.New(nc)
			if err != nil {
				t.Fatal(err)
			}
			if errors.Is(want, nats.ErrConnectionClosed) {
				nc.Close()
			}
			var asked touched
			join := func(context.Context, func(context.Context) error) (generator.Identity, error) {
				asked.times.Add(1)
				return generator.Identity{Installation: "i", Created: time.Now()}, nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
			defer cancel()
			err = generator.New(generator.Config{
				Conn: nc, JS: js, Store: touchedStore{memory(t), &asked}, Node: "n", Log: testkit.Quiet, Installation: "i",
				Tags: []allocator.Tag{{Name: "order", MaxID: 1, Step: 10}},
				Join: join, Open: func(context.Context) error { return nil }, OpenEvents: func(context.Context) error { return nil },
				Snowflake: snowflake.Config{
					Layout: snowflake.DefaultLayout(), Registry: touchedRegistry{snowflaketest.NewMemory(), &asked}, File: newFile(t, snowflaketest.NewDisk()),
					LastWorker: snowflake.DefaultLayout().Workers() - 1,
				},
				Ready: func() { t.Error("it is ready"); cancel() },
			}).Run(ctx)
			if !errors.Is(err, want) {
				t.Errorf("Run: %v, want %v", err, want)
			}
			if n := asked.times.Load(); n > 0 {
				t.Errorf("it joined, or asked the store or the registry: %d times", n)
			}
			if !nc.IsClosed() {
				t.Error("the connection is open")
			}
		})
	}
}

// A generator that ends because it does not belong here reserves nothing for the requests
// that wait. They are refused, and the callers ask another.
func TestRefusedWhileRequestsWait(t *testing.T) {
	t.Parallel()
	then := time.Now().Add(-time.Hour)
	of := func(id string, created time.Time) func(*generator.Config) {
		return func(c *generator.Config) {
			c.MaxWait = testkit.Patience / 4
			c.Join = func(context.Context, func(context.Context) error) (generator.Identity, error) {
				return generator.Identity{Installation: id, Created: created}, nil
			}
		}
	}
	s := natskit.Start(t)
	nc := natskit.Connect(t, s)
	store := &switched{Store: memory(t, "order")}
	store.away.Store(true)
	younger := start(t, s, "younger", store, of("A", then.Add(time.Minute)))
	replies := make(chan *nats.Msg, 1)
	inbox := nc.NewInbox()
	if _, err := nc.ChanSubscribe(inbox, replies); err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest("leaf.segment.order", inbox, nil); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the request waits", func() bool { return younger.State().Counts.Waiting > 0 })
	start(t, s, "older", memory(t), of("B", then))
	select {
	case msg := <-replies:
		if !strings.Contains(string(msg.Data), `"reason":"draining"`) {
			t.Errorf("it was answered %s", msg.Data)
		}
	case <-time.After(testkit.Patience):
		t.Error("it was not answered")
	}
	if err := younger.stop(); !errors.Is(err, allocator.ErrRefused) {
		t.Errorf("Run: %v", err)
	}
}
