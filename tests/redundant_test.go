package tests

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// With one NATS server the state is kept once, so leaf nodes --wait-redundant says at once that waiting does not help.
func TestWaitRedundantWithOneServer(t *testing.T) {
	t.Parallel()
	url := newNATS(t).ClientURL()
	for _, node := range []string{"a", "b"} {
		serve(t, t.TempDir(), "-s", url, "--node", node)
	}
	r := leaf(t, "nodes", "--wait-redundant", "--json", "-s", url)
	r.want(t, 1, "waiting does not help", "streams KV_LEAF, KV_LEAF_TAGS, KV_LEAF_WORKERS, LEAF_EVENTS: only one replica: its server may not go",
		"nats stream edit KV_LEAF --replicas 3", "services segments, snowflakes: all generators that are ready (a, b) use the NATS server")
	var said struct {
		Redundant *bool
		Missing   []struct{ What, Name, Why, Fix string }
		Streams   []struct{ Name string }
		Nodes     []struct{ Node, Server, Host string }
	}
	if err := json.Unmarshal([]byte(r.stdout), &said); err != nil {
		t.Fatalf("%v: %s", err, r.stdout)
	}
	if said.Redundant == nil || *said.Redundant || len(said.Missing) != 6 || len(said.Streams) != 4 || len(said.Nodes) != 2 ||
		said.Missing[0].Name != "KV_LEAF" || said.Missing[0].Fix == "" || said.Nodes[0].Server == "" || said.Nodes[0].Host == "" {
		t.Errorf("--json says %s", r.stdout)
	}
}

// Who may only take IDs cannot see the streams, and is not left waiting.
func TestWaitRedundantPermissions(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	writeFile(t, conf, `authorization { users: [
		{ user: all, password: p }
		{ user: watcher, password: p, permissions: { publish: [ "$SRV.STATS.leaf", "$JS.API.STREAM.INFO.*" ], subscribe: "_INBOX.>" } }
		{ user: blind, password: p, permissions: { publish: [ "$SRV.STATS.leaf" ], subscribe: "_INBOX.>" } }
		{ user: taker, password: p, permissions: { publish: [ "leaf.>", "$JS.API.STREAM.INFO.*" ] } }
	] }`)
	url := newNATSFrom(t, conf).ClientURL()
	serve(t, t.TempDir(), "-s", url, "--user", "all", "--password", "p", "--node", "a")
	as := func(user string) result {
		return leaf(t, "nodes", "--wait-redundant", "-s", url, "--user", user, "--password", "p")
	}
	as("watcher").want(t, 1, "only one replica", "only the generator a is ready")
	as("blind").want(t, 1, "may not ask for the streams of Leafbus", "$JS.API.STREAM.INFO.", "give another user")
	if r := as("taker"); r.status != 1 || !strings.Contains(r.stderr, "may not publish to $SRV.STATS.leaf") {
		t.Errorf("status %d: %s", r.status, r.stderr)
	}
}
