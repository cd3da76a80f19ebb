package bus

import (
	"runtime"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// beside returns a call of Take for one ID, and a bare request that gets the same answer from the same responder.
func beside(tb testing.TB) (take, bare func()) {
	server := natskit.Start(tb)
	generator, nc := natskit.Connect(tb, server), natskit.Connect(tb, server)
	_, err := generator.Subscribe("leaf.>", func(msg *nats.Msg) {
		if err := msg.Respond([]byte("1000000")); err != nil {
			tb.Error(err)
		}
	})
	if err == nil {
		err = generator.Flush()
	}
	if err != nil {
		tb.Fatal(err)
	}
	client, ctx, body := NewClient(nc), tb.Context(), []byte("1")
	take = func() {
		if _, err := client.Take(ctx, "order", 1); err != nil {
			tb.Error(err)
		}
	}
	bare = func() {
		if _, err := nc.Request("leaf.segment.order", body, testkit.Patience); err != nil {
			tb.Error(err)
		}
	}
	take()
	bare()
	return take, bare
}

// BenchmarkTake is a call of Take beside a bare request. The responder is the same, and so is what it allocates.
func BenchmarkTake(b *testing.B) {
	take, bare := beside(b)
	for _, way := range []struct {
		name string
		call func()
	}{{"Take", take}, {"bare", bare}} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				way.call()
			}
		})
		b.Run(way.name+"/callers=64", func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(64 / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					way.call()
				}
			})
		})
	}
}
