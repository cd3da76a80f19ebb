package generator_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/bus/kvstore"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// touched counts how often the records and the registry are asked.
type touched struct{ times atomic.Int64 }

type touchedRecords struct {
	allocator.Records
	*touched
}

func (s touchedRecords) Load(ctx context.Context, tag string) (allocator.Stored, error) {
	s.times.Add(1)
	return s.Records.Load(ctx, tag)
}

func (s touchedRecords) Watch(ctx context.Context, f func(allocator.Update)) error {
	s.times.Add(1)
	return s.Records.Watch(ctx, f)
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
	cfg := configured(t, `authorization { users: [
		{user: all, password: p}
		{user: mute, password: p, permissions: {publish: {deny: ["leaf.internal.presence"]}}}
		{user: alone, password: p, permissions: {subscribe: {deny: ["leaf.internal.presence"]}}}
		{user: blind, password: p, permissions: {subscribe: {deny: ["leaf.internal.record"]}}}
	] }`)
	cfg.User, cfg.Password = "all", "p"
	s := natskit.StartWith(t, cfg)
	for _, user := range []string{"all", "mute", "alone", "blind"} {
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
			want := nats.ErrPermissionViolation
			if user == "all" {
				want = nats.ErrConnectionClosed
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
				Conn: nc, JS: js, Records: touchedRecords{memory(t), &asked}, Keys: kvstore.NewKeys(kvstore.Config{JS: js}), Index: allocator.NewIndex(), Node: "n", Log: testkit.Quiet, Installation: "i",
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
