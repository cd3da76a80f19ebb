package bus

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/natskit"
)

// BenchmarkNext is the time from one ID to the next of all callers together, over NATS. Each caller has
// a context of its own.
func BenchmarkNext(b *testing.B) {
	server := natskit.Start(b)
	generator := natskit.Connect(b, server)
	var last atomic.Int64
	_, err := generator.Subscribe("leaf.>", func(msg *nats.Msg) {
		n, err := strconv.ParseInt(string(msg.Data), 10, 64)
		if err != nil {
			b.Error(err)
		}
		end := last.Add(n)
		if err := msg.Respond(AppendReply(nil, []Range{{First: end - n + 1, Last: end}}, false)); err != nil {
			b.Error(err)
		}
	})
	if err == nil {
		err = generator.Flush()
	}
	if err != nil {
		b.Fatal(err)
	}
	client := NewClient(natskit.Connect(b, server))
	for _, callers := range []int{1, 64, 1024} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			b.ReportAllocs()
			var all sync.WaitGroup
			for i := range callers {
				ctx, cancel := context.WithCancel(b.Context())
				defer cancel()
				all.Go(func() {
					for range (b.N + i) / callers {
						if _, err := client.Next(ctx, "order"); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}
