package generator_test

import (
	"sync"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// gate is an observer that holds up the answers while it is shut.
type gate struct {
	observer
	mu      sync.Mutex // held: it is shut
	reached chan struct{}
}

func (g *gate) Answered(a generator.Answer) {
	if a.Kind != generator.SegmentKind || a.Waited { // a request that waited is answered outside its callback
		return
	}
	select {
	case g.reached <- struct{}{}:
	default:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
}

// A generator whose connection is lost while a limit begins or ends loses no requests afterwards.
func TestLimitWhileTheConnectionIsLost(t *testing.T) {
	t.Parallel()
	for name, windows := range map[string][2]int64{"begins": {0, 600}, "ends": {600, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natskit.Start(t)
			gate := &gate{reached: make(chan struct{}, 1)}
			g := start(t, s, "a", memory(t, "order"), func(c *generator.Config) { c.Observer = gate })
			nc := natskit.Connect(t, s)
			subs := g.conn.NumSubscriptions()
			g.Limit(t.Context(), windows[0])
			if err := g.conn.FlushTimeout(testkit.Patience); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, "an answer in its callback", func() bool {
				_, _ = ask(t, nc, "leaf.segment.order", "")
				select {
				case <-gate.reached:
					return true
				default:
					return false
				}
			})
			gate.mu.Lock()
			select {
			case <-gate.reached: // of a request before
			default:
			}
			if err := nc.PublishRequest("leaf.segment.order", "nobody", nil); err != nil {
				t.Fatal(err)
			}
			<-gate.reached
			g.Limit(t.Context(), windows[1])
			before := g.conn.Stats().Reconnects
			if err := g.conn.ForceReconnect(); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, "a reconnect", func() bool { return g.conn.IsConnected() && g.conn.Stats().Reconnects > before })
			gate.mu.Unlock()
			g.Limit(t.Context(), 0)
			testkit.Eventually(t, "the old subscriptions to end", func() bool { return g.conn.NumSubscriptions() == subs })
			testkit.Eventually(t, "answers to all requests", func() bool {
				for range 50 {
					if _, err := nc.Request("leaf.segment.order", nil, 500*time.Millisecond); err != nil {
						return false
					}
				}
				return true
			})
		})
	}
}
