package generator_test

import (
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// While the limit of a service begins and ends again and again, hardly a request is refused, none is lost, no ID comes
// twice, and the service is found.
func TestLimitWhileCallersAsk(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	g := start(t, s, "a", memory(t, "order"), nil)
	var ids allocatortest.Checker
	var mu sync.Mutex
	var refused atomic.Int64
	subs := g.conn.NumSubscriptions()
	done := make(chan struct{})
	var callers sync.WaitGroup
	for range 4 {
		nc := natskit.Connect(t, s)
		callers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				msg, err := nc.Request("leaf.segment.order", nil, testkit.Patience)
				if errors.Is(err, nats.ErrNoResponders) {
					refused.Add(1) // NATS was passing it on to a subscription that ended just then
					continue
				}
				if err != nil {
					t.Errorf("a request: %v", err)
					return
				}
				ranges, err := bus.ParseReply(msg.Data)
				if err != nil {
					t.Errorf("an answer: %q, %v", msg.Data, err)
					return
				}
				mu.Lock()
				ids.Add(ranges...)
				mu.Unlock()
			}
		})
	}
	nc := natskit.Connect(t, s)
	for i := range 40 {
		g.Limit(t.Context(), []int64{1000, 0}[i%2])
		testkit.Eventually(t, "the service to be found", func() bool { // as above
			reply, _ := ask(t, nc, "$SRV.PING.leaf-segment", "")
			var ping micro.Ping
			return json.Unmarshal([]byte(reply), &ping) == nil && ping.Name == "leaf-segment"
		})
	}
	close(done)
	callers.Wait()
	testkit.Eventually(t, "the old subscriptions to end", func() bool { return g.conn.NumSubscriptions() == subs })
	if n := refused.Load(); n > 40 {
		t.Errorf("%d requests were refused", n)
	}
	if _, err := ids.Check(); err != nil {
		t.Error(err)
	}
}
