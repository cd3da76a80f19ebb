package generator_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
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
	client := bus.NewClient(natskit.Connect(t, s))
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	workerOf := func(ranges []bus.Range) int64 {
		p, err := snowflake.DefaultLayout().Decode(ranges[0].First, time.Now().UnixMilli())
		if err != nil {
			t.Fatal(err)
		}
		return p.Worker
	}
	first, err := client.Snowflakes(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	held := workerOf(first)

	memory.Wipe()
	if _, err := memory.Add(ctx, snowflake.Record{Node: "b", Incarnation: "b", ReservedUntil: time.Now().Add(time.Hour).UnixMilli()},
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
	nc := natskit.Connect(t, s)
	inbox := nc.NewInbox()
	replies, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest(bus.SubjectSnowflake, inbox, nil); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	// A request on the same connection, sent later, is answered: so was the first, if it could be.
	if _, err := client.Decode(ctx, first[0].First); err != nil {
		t.Fatal(err)
	}
	close(registry.let)
	msg, err := replies.NextMsgWithContext(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := strconv.ParseInt(string(msg.Data), 10, 64); err == nil {
		if worker := workerOf([]bus.Range{{First: id, Last: id}}); worker == held {
			t.Errorf("an ID of worker %d, which another holds", worker)
		}
	}
	// It takes another worker in the end.
	again, err := client.Snowflakes(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	if worker := workerOf(again); worker == held {
		t.Errorf("an ID of worker %d, which another holds", worker)
	}
}
