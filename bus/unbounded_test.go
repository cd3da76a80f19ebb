package bus_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
)

// TestCallsWithoutDeadline makes every call of the client with a context that has no deadline.
// Some callers hear nothing; a survey hears more and more. The client's Timeout ends each.
func TestCallsWithoutDeadline(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	responder := natskit.Connect(t, s)
	var talking sync.WaitGroup
	t.Cleanup(talking.Wait)
	ended, end := context.WithCancel(context.Background())
	defer end()
	for subject, chatty := range map[string]bool{"leaf.>": false, "$SRV.STATS.leaf": true, bus.SubjectBuffers: true} {
		if _, err := responder.Subscribe(subject, func(msg *nats.Msg) {
			talking.Go(func() {
				for chatty && ended.Err() == nil && msg.Subject == subject {
					_ = msg.Respond([]byte("{}"))
					time.Sleep(20 * time.Millisecond)
				}
			})
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := responder.Flush(); err != nil {
		t.Fatal(err)
	}

	c := bus.NewClient(natskit.Connect(t, s), bus.Timeout(200*time.Millisecond))
	tags, err := c.Pool("order")
	if err != nil {
		t.Fatal(err)
	}
	defer tags.Close()
	flakes, err := c.SnowflakePool()
	if err != nil {
		t.Fatal(err)
	}
	defer flakes.Close()
	calls := map[string]func(context.Context) error{
		"Take":            func(ctx context.Context) error { return second(c.Take(ctx, "order", 1)) },
		"Snowflakes":      func(ctx context.Context) error { return second(c.Snowflakes(ctx, 1)) },
		"Next":            func(ctx context.Context) error { return second(c.Next(ctx, "order")) },
		"NextSnowflake":   func(ctx context.Context) error { return second(c.NextSnowflake(ctx)) },
		"Pool":            func(ctx context.Context) error { return second(tags.Next(ctx)) },
		"SnowflakePool":   func(ctx context.Context) error { return second(flakes.Next(ctx)) },
		"Ranges":          func(ctx context.Context) error { return first(c.Ranges(ctx, "order", 1)) },
		"IDs":             func(ctx context.Context) error { return first(c.IDs(ctx, "order", 1)) },
		"SnowflakeRanges": func(ctx context.Context) error { return first(c.SnowflakeRanges(ctx, 1)) },
		"SnowflakeIDs":    func(ctx context.Context) error { return first(c.SnowflakeIDs(ctx, 1)) },
		"Decode":          func(ctx context.Context) error { return second(c.Decode(ctx, 1)) },
		"Tags":            func(ctx context.Context) error { return second(c.Tags(ctx, bus.PageRequest{})) },
		"Tag":             func(ctx context.Context) error { return second(c.Tag(ctx, "order")) },
		"CreateTag":       func(ctx context.Context) error { return second(c.CreateTag(ctx, bus.TagCreate{Tag: "order"})) },
		"UpdateTag":       func(ctx context.Context) error { return second(c.UpdateTag(ctx, bus.TagUpdate{Tag: "order"})) },
		"AdvanceTag":      func(ctx context.Context) error { return second(c.AdvanceTag(ctx, "order")) },
		"DeleteTag":       func(ctx context.Context) error { return second(c.DeleteTag(ctx, "order")) },
		"RevealIDs":       func(ctx context.Context) error { return second(c.RevealIDs(ctx, "coupon", 1)) },
		"Claims":          func(ctx context.Context) error { return second(c.Claims(ctx, bus.ClaimsRequest{})) },
		"AuditTag":        func(ctx context.Context) error { return second(c.AuditTag(ctx, "order")) },
		"Trace":           func(ctx context.Context) error { return second(c.Trace(ctx, bus.TraceRequest{Tag: "order", ID: 1})) },
		"Workers":         func(ctx context.Context) error { return second(c.Workers(ctx, bus.WorkersRequest{})) },
		"ReleaseWorker":   func(ctx context.Context) error { return second(c.ReleaseWorker(ctx, bus.WorkerRelease{})) },
		"States":          func(ctx context.Context) error { return second(c.States(ctx)) },
		"Buffers":         func(ctx context.Context) error { return second(c.Buffers(ctx, bus.PageRequest{})) },
		"BuffersOf":       func(ctx context.Context) error { return second(c.BuffersOf(ctx, "order")) },
	}
	others := []string{"Events", "Stats"} // the one goes on until its context is done, the other asks nobody
	for m := range reflect.TypeFor[*bus.Client]().Methods() {
		if calls[m.Name] == nil && !slices.Contains(others, m.Name) {
			t.Errorf("nobody knows how long %s takes", m.Name)
		}
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
