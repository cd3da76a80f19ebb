package tests

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/bus"
)

// A program, its services, its state and its events name one version.
func TestOneVersion(t *testing.T) {
	t.Parallel()
	version, ok := strings.CutPrefix(strings.TrimSpace(leafOK(t, "--version")), "leaf version ")
	if !ok || strings.HasPrefix(version, "v") {
		t.Errorf("leaf --version says %q", version)
	}
	g := embed(t)
	nc := connect(t, g.url)
	var info micro.Info
	if err := json.Unmarshal(ask(t, nc, "$SRV.INFO.leaf", "").Data, &info); err != nil || info.Version != version {
		t.Errorf("the service has version %q, the program %q (%v)", info.Version, version, err)
	}
	states, err := bus.NewClient(nc).States(t.Context())
	if err != nil || len(states) != 1 || states[0].Version != version {
		t.Errorf("the states are %+v, %v; want version %q", states, err, version)
	}
	if e := lastEvent[bus.NodeEvent](t, jetStream(t, nc), "leaf.events.info.node.started."+g.node); e.Version != version {
		t.Errorf("the event has version %q, want %q", e.Version, version)
	}
}
