package tests

import (
	"syscall"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// Each request is a reservation and a claim, and one of three generators dies or stands still at random moments, so
// also between the two. Meanwhile the database is set back. No ID comes twice.
func TestStopsBetweenReservationAndClaim(t *testing.T) {
	t.Parallel()
	stopBetween(t, 1)
}

// stopBetween stops generators so many times more often than a test does.
func stopBetween(t *testing.T, more int) {
	t.Helper()
	for name, c := range map[string]struct {
		rounds int
		stop   func(t *testing.T, l *ledgered, g *generator, pause time.Duration) *generator
	}{
		"killed": {4, func(t *testing.T, l *ledgered, g *generator, pause time.Duration) *generator {
			g.kill()
			l.wait(pause)
			return g.again(t, "--mysql", l.dsn, "--node", g.node, "--max-step", "1")
		}},
		"frozen": {40, func(_ *testing.T, l *ledgered, g *generator, pause time.Duration) *generator {
			g.freeze()
			l.wait(pause)
			g.signal(syscall.SIGCONT)
			return g
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := allocatortest.Seed(t)
			l := newLedgered(t)
			nodes := []string{"one", "two", "three"}
			generators := l.join(nodes, "--tag", "order:1", "--max-step", "1", "--max-wait", "1s")
			cfg := hasty("order", bus.TimedOut, bus.StoreUnavailable, bus.Draining)
			cfg.maxBatch = 3
			load := startLoad(t, cfg, l.url, l.url)
			for round := range c.rounds * more {
				load.more(1 + seed.Int64N(60))
				node := nodes[seed.IntN(len(nodes))]
				l.wait(time.Duration(seed.Int64N(int64(3 * time.Millisecond))))
				if round%4 == 3 {
					l.forget()
				}
				generators[node] = c.stop(t, l, generators[node], time.Duration(seed.Int64N(int64(50*time.Millisecond))))
				load.checkIDs()
			}
			highest := load.highest.Load()
			testkit.Eventually(t, "more IDs", func() bool { load.checkIDs(); return load.highest.Load() > highest+500 })
			load.report()
			load.agrees(l.url)
			for _, g := range generators {
				g.stop()
			}
		})
	}
}

// wait lets some time pass, so that a process is stopped anywhere in what it does.
func (l *ledgered) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.t.Context().Done():
	}
}
