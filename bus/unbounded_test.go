package bus_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
)

// TestCallsWithoutDeadline makes calls of each kind with a context that has no deadline.
// They hear nothing. The client's Timeout ends each.
func TestCallsWithoutDeadline(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	responder := natskit.Connect(t, s)
	if _, err := responder.Subscribe("leaf.>", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	if err := responder.Flush(); err != nil {
		t.Fatal(err)
	}

	c := bus.NewClient(natskit.Connect(t, s), bus.Timeout(200*time.Millisecond))
	pool, err := c.Pool("order")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	calls := map[string]func(context.Context) error{
		"Take":          func(ctx context.Context) error { return second(c.Take(ctx, "order", 1)) },
		"Next":          func(ctx context.Context) error { return second(c.Next(ctx, "order")) },
		"NextSnowflake": func(ctx context.Context) error { return second(c.NextSnowflake(ctx)) },
		"Pool":          func(ctx context.Context) error { return second(pool.Next(ctx)) },
		"Ranges":        func(ctx context.Context) error { return first(c.Ranges(ctx, "order", 1)) },
		"SnowflakeIDs":  func(ctx context.Context) error { return first(c.SnowflakeIDs(ctx, 1)) },
		"Decode":        func(ctx context.Context) error { return second(c.Decode(ctx, 1)) },
	}
	var all sync.WaitGroup
	for name, call := range calls {
		all.Go(func() {
			if err := call(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	all.Wait()
}
