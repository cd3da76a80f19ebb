package bus_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// TestCallsWithoutDeadline makes every call of the client with a context that has no deadline.
// Some callers hear nothing; a survey hears more and more. The client's Timeout ends each.
func TestCallsWithoutDeadline(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	responder := natskit.Connect(t, s)
	stop := make(chan struct{})
	var talking sync.WaitGroup
	defer func() { close(stop); talking.Wait() }()
	subscribe := func(subject string, every time.Duration) {
		sub, err := responder.SubscribeSync(subject)
		if err != nil {
			t.Fatal(err)
		}
		if every == 0 {
			return // silent
		}
		talking.Go(func() {
			msg, err := sub.NextMsg(testkit.Patience)
			if err != nil {
				t.Error(err)
				return
			}
			tick := time.NewTicker(every)
			defer tick.Stop()
			for err == nil {
				err = msg.Respond([]byte("{}"))
				select {
				case <-tick.C:
				case <-stop:
					return
				}
			}
		})
	}
	for _, silent := range []string{"leaf.segment.>", bus.SubjectSnowflake, bus.SubjectDecode, "leaf.admin.tags.>", "leaf.admin.workers.>",
		bus.SubjectClaims, bus.SubjectAudit, bus.SubjectTrace} {
		subscribe(silent, 0)
	}
	for _, chatty := range []string{"$SRV.STATS.leaf", bus.SubjectBuffers} {
		subscribe(chatty, 20*time.Millisecond)
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
	defer all.Wait()
	for name, call := range calls {
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context()) // it has no deadline
		all.Go(func() { ended <- call(ctx) })
		all.Go(func() {
			defer cancel()
			select {
			case err := <-ended:
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v", name, err)
				}
			case <-time.After(testkit.Patience):
				t.Errorf("%s goes on", name)
			}
		})
	}
}
