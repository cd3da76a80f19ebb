//go:build drills

package drills

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
)

// TestDrillGapOfAStop prints how many IDs of a busy tag are never handed out because generators stop: one alone, whose
// memory nobody takes over, and three that are restarted one after the other.
func TestDrillGapOfAStop(t *testing.T) {
	for name, n := range map[string]int{"alone": 1, "rolling": 3} {
		t.Run(name, func(t *testing.T) {
			url := natskit.Start(t).ClientURL()
			nc := kit.Connect(t, url)
			var all []*kit.Generator
			for range n {
				all = append(all, kit.Join(t, url, "--tag", "order", "--http", ""))
			}
			var handed, failed, stop atomic.Int64
			var callers sync.WaitGroup
			for range 32 {
				callers.Go(func() {
					for stop.Load() == 0 {
						msg, err := nc.Request("leaf.segment.order", []byte("10"), 2*time.Second)
						if err != nil || bus.ReplyError(msg) != nil {
							failed.Add(1)
							continue
						}
						handed.Add(10)
					}
				})
			}
			gap := func() int64 {
				tag, err := admin.NewClient(nc).Tag(t.Context(), "order")
				kit.Must(t, err)
				is := int64(tag.MaxID) - 1 - handed.Load()
				pages, err := admin.NewClient(nc).Buffers(t.Context(), admin.BuffersRequest{Tags: []string{"order"}})
				kit.Must(t, err)
				for _, p := range pages {
					for _, b := range p.Buffers {
						is -= b.Left
					}
				}
				return is
			}
			time.Sleep(10 * time.Second) // of load
			for i, g := range all {
				if n == 1 {
					stop.Add(1)
					callers.Wait()
				}
				begun := time.Now()
				kit.Must(t, g.Stop())
				t.Logf("it stopped in %v", time.Since(begun).Round(time.Millisecond))
				all[i] = g.Again()
			}
			stop.Add(1)
			callers.Wait()
			testkit.Eventually(t, "all are heard", func() bool { return len(kit.States(nc)) == n })
			t.Logf("%d IDs handed out, %d requests failed, %d IDs are a gap", handed.Load(), failed.Load(), gap())
		})
	}
}
