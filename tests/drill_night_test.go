//go:build drills

package tests

import (
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.yaml.in/yaml/v3"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// The whole night: each fault is caused for real, and each alert wakes an operator who knows only its name. The section of the
// runbook must lead to commands whose output names the cause. When the fault is over, the alert ends as the section says.
//
// These are the alerts of each night.
var nights = map[string][]string{
	"TestDrillNightDatabase": {"LeafRefillsFail", "LeafIDsRunOut", "LeafTagDown", "LeafCannotServe", "LeafManyRequestsRefused", "LeafBudgetBurns",
		"LeafRequestsRefused", "LeafNotReady", "LeafAlertEvent", "leaf.segment.refill_failed", "leaf.segment.starved"},
	"TestDrillNightGenerators": {"LeafGeneratorDown", "LeafGeneratorLost", "LeafRestarts", "LeafNoGenerator", "leaf.node.lost"},
	"TestDrillNightRestored":   {"LeafStoreAdvanced", "leaf.segment.regressed"},
	"TestDrillNightShared":     {"LeafStoreRegressed", "LeafIDsInDoubt"},
	"TestDrillNightLedger":     {"LeafLedgerUnavailable", "leaf.ledger.unavailable", "leaf.ledger.replaced"},
	"TestDrillNightEvents":     {"LeafEventsWait", "LeafEventsDropped"},
	"TestDrillNightRegistry":   {"LeafWorkerNotRenewed", "LeafWorkerRunsOut", "leaf.worker.expiring", "leaf.worker.lost"},
	"TestDrillNightLayout":     {"leaf.worker.ending"},
	"TestDrillNightClock":      {"LeafClockOff", "leaf.clock.backwards", "leaf.clock.skewed"},
	"TestDrillNightDisk":       {"LeafNATSDegraded", "leaf.nats.degraded"},
	"TestDrillNightTags":       {"LeafTagExhausted", "leaf.segment.ending", "leaf.segment.shadowed"},
	"TestDrillNightCutOff":     {"leaf.node.stale"},
	"TestDrillNightFiles":      {"LeafFilesRunOut"},
	"TestDrillNightSlow":       {"LeafSlow", "LeafTagLastsShort"},
	"TestDrillNightOverload":   {"LeafOverloaded"},
}

// No alert is forgotten.
func TestDrillNightsHaveEveryAlert(t *testing.T) {
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert string }
		}
	}
	must(t, yaml.Unmarshal([]byte(topFile(t, alertsFile)), &rules))
	var have, want []string
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if rule.Alert != "" {
				want = append(want, rule.Alert)
			}
		}
	}
	for what, severity := range bus.EventTypes() {
		if severity == "alert" {
			want = append(want, what)
		}
	}
	for _, alerts := range nights {
		have = append(have, alerts...)
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) {
		t.Errorf("the nights have the alerts %q, want %q", have, want)
	}
}

// watch is an installation with three generators, and the pager of its operator.
type watch struct {
	*pager
	nc   *nats.Conn
	js   jetstream.JetStream
	g    map[string]*generator
	face map[string]string // HTTP addresses
	args map[string][]string
}

// newWatch starts generators that join a NATS.
func newWatch(t *testing.T, url string, nodes []string, args ...string) *watch {
	t.Helper()
	return newWatchOf(t, url, nil, nodes, args...)
}

// newWatchOf is newWatch where other generators run, with these HTTP addresses.
func newWatchOf(t *testing.T, url string, faces, nodes []string, args ...string) *watch {
	t.Helper()
	w := &watch{g: make(map[string]*generator), face: make(map[string]string), args: make(map[string][]string)}
	for _, node := range nodes {
		w.face[node] = testkit.FreeAddress(t)
		faces = append(faces, w.face[node])
		w.args[node] = append([]string{"-s", url, "--node", node, "--http", w.face[node]}, args...)
		w.g[node] = serve(t, t.TempDir(), w.args[node]...)
	}
	w.nc = connect(t, url)
	w.js = jetStream(t, w.nc)
	w.pager = startPager(t, faces)
	w.flags = []string{"-s", url}
	return w
}

// load takes IDs of all tags but the last until the test ends.
func (w *watch) load() { night{nc: w.nc}.load(w.t) }

var threeNodes = []string{"gen_1", "gen_2", "gen_3"}
