package generator_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// cluster starts three NATS servers.
func cluster(t *testing.T) (servers []*embedded.Server) {
	t.Helper()
	var routes []string
	for range 3 {
		routes = append(routes, testkit.FreeAddress(t))
	}
	for i, listen := range routes {
		cfg := configured(t, fmt.Sprintf("server_name: n%d, cluster { name: c, listen: %q, routes: [nats://%s] }", i, listen, strings.Join(routes, ", nats://")))
		servers = append(servers, natskit.StartWith(t, cfg))
	}
	return servers
}

// All generators are at one of three NATS servers. Two of them move, and no request is refused or lost meanwhile.
func TestSpread(t *testing.T) {
	t.Parallel()
	servers := cluster(t)
	store := memory(t, "order")
	var all []*running
	for _, node := range []string{"a", "b", "c"} {
		g, _ := startIn(t, servers[0], node, "own", store, func(cfg *generator.Config) { cfg.SpreadAfter(500 * time.Millisecond) })
		all = append(all, g)
	}
	var callers sync.WaitGroup
	var done atomic.Bool
	for i := range 12 {
		nc, subject := natskit.Connect(t, servers[i%3]), []string{"leaf.segment.order", "leaf.snowflake"}[i%2]
		callers.Go(func() {
			for !done.Load() {
				if msg, err := nc.Request(subject, nil, testkit.Patience); err != nil || bus.ReplyError(msg) != nil {
					t.Errorf("%s: %v %v", subject, msg, err)
					return
				}
			}
		})
	}
	testkit.Eventually(t, "each is at a server of its own", func() bool {
		var at []string
		for _, g := range all {
			at = append(at, g.State().Server)
		}
		slices.Sort(at)
		return slices.Equal(at, []string{"n0", "n1", "n2"})
	})
	testkit.Eventually(t, "all serve again", func() bool {
		return !slices.ContainsFunc(all, func(g *running) bool { s := g.State(); return !s.Segment || !s.Snowflake })
	})
	done.Store(true)
	callers.Wait()
}

// Generators that cannot move say so, once, until they do not all use one server any more.
func TestCrowdedAlert(t *testing.T) {
	t.Parallel()
	servers := cluster(t)
	store := memory(t, "order")
	stays := func(cfg *generator.Config) { cfg.NextServer = nil; cfg.SpreadAfter(100 * time.Millisecond) }
	startIn(t, servers[0], "a", "own", store, stays)
	startIn(t, servers[0], "b", "own", store, stays)
	alerts := eventsOn(t, natskit.Connect(t, servers[1]))
	testkit.Eventually(t, "the alert", func() bool { return len(alerts("leaf.nats.degraded")) > 0 })
	startIn(t, servers[1], "c", "own", store, stays)
	testkit.Eventually(t, "its end", func() bool { return len(alerts("leaf.nats.recovered")) > 0 })
	found := alerts("leaf.nats.degraded")
	body, _ := found[0].Body.(events.NATSDegraded)
	if len(found) > 1 || !strings.Contains(body.Cause, "all generators use one NATS server, n0: a, b.") {
		t.Errorf("the alerts are %+v", found)
	}
}
