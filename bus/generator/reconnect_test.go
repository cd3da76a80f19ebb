package generator_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// haltedRegistry is a registry whose Put stops, once it is armed, until it is let go.
type haltedRegistry struct {
	snowflake.Registry
	armed   atomic.Bool
	reached chan struct{}
	let     chan struct{}
}

func (s *haltedRegistry) Put(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
	if s.armed.CompareAndSwap(true, false) {
		close(s.reached)
		<-s.let
	}
	return s.Registry.Put(ctx, r, version)
}

// While a generator was cut off its worker's record was lost, and another took
// the worker. The first request after it must not be answered from that worker.
func TestWorkerLostWhileCutOff(t *testing.T) {
	t.Parallel()
	s, store := natskit.Start(t), memory(t)
	memory := snowflaketest.NewMemory()
	registry := &haltedRegistry{Registry: memory, reached: make(chan struct{}), let: make(chan struct{})}
	g := start(t, s, "a", store, func(c *generator.Config) { c.Snowflake.Registry = registry })
	let := sync.OnceFunc(func() { close(registry.let) })
	t.Cleanup(let) // else the generator could not end if the test fails before
	nc := natskit.Connect(t, s)
	held := flake(t, nc).Worker

	memory.Wipe()
	if _, err := memory.Add(t.Context(),
		snowflake.Record{Node: "b", Incarnation: "b", ReservedUntil: time.Now().Add(time.Hour).UnixMilli()},
		snowflake.Choice{First: held, Last: held}); err != nil {
		t.Fatal(err)
	}
	registry.armed.Store(true)
	connected := g.conn.StatusChanged(nats.CONNECTED)
	if err := g.conn.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	<-connected
	if err := g.conn.Flush(); err != nil { // its subscriptions are there again
		t.Fatal(err)
	}
	<-registry.reached // it looks at its record, or was about to when it was cut off
	replies, err := nc.SubscribeSync(nc.NewInbox())
	if err == nil {
		err = nc.PublishRequest(wire.SubjectSnowflake, replies.Subject, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	// A request on the same connection, sent later, is answered: so was the first, if it could be.
	ask(t, nc, "leaf.decode", "1")
	let()
	msg, err := replies.NextMsg(testkit.Patience / 10) // none if a busy machine stood still: then it was dropped
	if err == nil {
		_, err = strconv.ParseInt(string(msg.Data), 10, 64)
	}
	if err == nil && parts(t, string(msg.Data)).Worker == held {
		t.Errorf("an ID of worker %d, which another holds", held)
	}
	testkit.Eventually(t, "it takes another worker", func() bool {
		body, code := ask(t, nc, wire.SubjectSnowflake, "")
		return code == "" && parts(t, body).Worker != held
	})
}
