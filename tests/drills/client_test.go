//go:build drills

package drills

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/tests/kit"
)

// TestDrillClient prints what 10,000 calls with a deadline of 500 ms meet, one each millisecond, on a client of
// bus.Connect. One of three generators or of three NATS servers is killed after a second, or frozen for 10 s. Each
// generator is at another server: if two are at one that freezes, two thirds of the requests are lost. No ID comes
// twice.
func TestDrillClient(t *testing.T) {
	binary := buildNATS(t, embeddedVersion(t))
	for _, fault := range []string{"none", "a generator is killed", "a generator is frozen", "a server is killed", "a server is frozen"} {
		t.Run(fault, func(t *testing.T) {
			c := newNATSCluster(t, binary)
			var generators []*kit.Generator
			for i := range 3 {
				generators = append(generators, kit.Join(t, c.urls[i], "--node", fmt.Sprint("g", i), "--tag", "order:1000000"))
			}
			c.current()
			client, err := bus.ConnectWith(c.urls[:], []nats.Option{nats.DontRandomize()}) // first to the first server
			kit.Must(t, err)
			defer client.Close()
			calls := &measured{}
			for range 1000 { // the client learns how fast answers come
				calls.take(t, client, false)
			}
			began := time.Now()
			victim := map[string]*kit.Process{
				"a generator is killed": generators[1].Process, "a generator is frozen": generators[1].Process,
				"a server is killed": c.servers[0], "a server is frozen": c.servers[0],
			}[fault]
			time.AfterFunc(time.Second, func() {
				switch fault {
				case "a generator is killed", "a server is killed":
					_ = victim.Kill()
				case "a generator is frozen", "a server is frozen":
					_ = victim.Freeze()
					time.AfterFunc(10*time.Second, func() { _ = victim.Thaw() })
				}
			})
			var all sync.WaitGroup
			for i := range 10_000 {
				time.Sleep(time.Until(began.Add(time.Duration(i) * time.Millisecond)))
				all.Go(func() { calls.take(t, client, true) })
			}
			all.Wait()
			time.Sleep(time.Until(began.Add(12 * time.Second)))
			calls.report(t)
		})
	}
}

// measured are the calls of a client.
type measured struct {
	mu     sync.Mutex
	ids    []bus.Range
	took   []time.Duration
	failed []error
}

func (m *measured) take(t *testing.T, c *bus.Client, counts bool) {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	ids, err := c.Take(ctx, "order", 1)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range ids {
		m.ids = idspace.AppendRange(m.ids, r)
	}
	if counts {
		m.took = append(m.took, time.Since(began))
		if err != nil {
			m.failed = append(m.failed, err)
		}
	}
}

func (m *measured) report(t *testing.T) {
	slices.Sort(m.took)
	late := len(m.took) - max(0, slices.IndexFunc(m.took, func(d time.Duration) bool { return d > 150*time.Millisecond }))
	if m.took[len(m.took)-1] <= 150*time.Millisecond {
		late = 0
	}
	t.Logf("%d calls, %d failed, %d took over 150 ms, p50 %v, p99.9 %v, longest %v %v", len(m.took), len(m.failed), late,
		m.took[len(m.took)/2], m.took[len(m.took)*999/1000], m.took[len(m.took)-1], m.failed)
	seen := make(map[int64]bool)
	for _, r := range m.ids {
		for id := r.First; id <= r.Last; id++ {
			if seen[id] {
				t.Errorf("%d came twice", id)
			}
			seen[id] = true
		}
	}
}
