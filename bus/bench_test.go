package bus

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// beside returns a client and its connection, and a generator that counts.
func beside(tb testing.TB) (*Client, *nats.Conn) {
	server := natskit.Start(tb)
	generator := natskit.Connect(tb, server)
	var last atomic.Int64
	_, err := generator.Subscribe("leaf.>", func(msg *nats.Msg) {
		n, err := strconv.ParseInt(string(msg.Data), 10, 64)
		if err != nil {
			tb.Error(err)
		}
		end := last.Add(n)
		if err := msg.Respond(AppendReply(nil, []Range{{First: end - n + 1, Last: end}}, false)); err != nil {
			tb.Error(err)
		}
	})
	if err == nil {
		err = generator.Flush()
	}
	if err != nil {
		tb.Fatal(err)
	}
	nc := natskit.Connect(tb, server)
	return NewClient(nc), nc
}

// BenchmarkCalls is the time from one call to the next of all callers together, over NATS: of Take beside a bare request
// with the same responder, and of Next.
func BenchmarkCalls(b *testing.B) {
	client, nc := beside(b)
	body := []byte("1")
	for name, call := range map[string]func(context.Context) error{
		"Take": func(ctx context.Context) error { _, err := client.Take(ctx, "order", 1); return err },
		"bare": func(context.Context) error {
			_, err := nc.Request("leaf.segment.order", body, testkit.Patience)
			return err
		},
		"Next": func(ctx context.Context) error { _, err := client.Next(ctx, "order"); return err },
	} {
		for _, callers := range []int{1, 64, 1024} {
			b.Run(fmt.Sprintf("%s/callers=%d", name, callers), func(b *testing.B) { together(b, callers, call) })
		}
	}
}

// together shares b.N calls out to so many goroutines. Each has a context of its own.
func together(b *testing.B, callers int, call func(ctx context.Context) error) {
	b.ReportAllocs()
	var all sync.WaitGroup
	for i := range callers {
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		all.Go(func() {
			for range (b.N + i) / callers {
				if err := call(ctx); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// BenchmarkPool is the time from one ID of a pool to the next of all goroutines together.
func BenchmarkPool(b *testing.B) {
	p := newPoolUnderTest(b, func(_ context.Context, n int64) ([]Range, time.Time, error) {
		return []Range{{First: 1, Last: n}}, time.Now(), nil
	})
	b.Cleanup(func() { p.Close() })
	for _, callers := range []int{1, 2} {
		b.Run(fmt.Sprintf("goroutines=%d", callers), func(b *testing.B) {
			together(b, callers, func(ctx context.Context) error { _, err := p.Next(ctx); return err })
		})
	}
}
