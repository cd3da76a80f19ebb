package generator_test

import (
	"slices"
	"testing"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// TestRegistryUnavailable: a registry of workers that does not answer is an alert and a finding, although the generator
// is ready and gives snowflakes.
func TestRegistryUnavailable(t *testing.T) {
	t.Parallel()
	registry := newRegistry(snowflaketest.NewMemory())
	g := start(t, natskit.Start(t), "n", memory(t), on(newClock(), registry))
	stream := eventsOn(t, g.conn)
	finds := func() bool {
		return slices.ContainsFunc(g.State().Findings, func(f admin.Finding) bool {
			return f.Kind == "registry.unavailable" && f.Severity == admin.Problem && f.Message != "" && f.Count == 0
		})
	}
	testkit.Eventually(t, "it is ready", func() bool { return g.Readiness().Ready })
	registry.away.Store(true)
	testkit.Eventually(t, "the finding", finds)
	if r := g.Readiness(); !r.Ready || !r.Snowflake {
		t.Errorf("readiness: %+v", r)
	}
	testkit.Eventually(t, "the alert", func() bool { return len(stream("leaf.registry.unavailable")) == 1 })
	registry.away.Store(false)
	testkit.Eventually(t, "its end", func() bool { return len(stream("leaf.registry.recovered")) == 1 && !finds() })
}
