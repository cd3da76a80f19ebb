package embedded

import (
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A server of a cluster knows which server is at each of its routes. A route may lead to itself, or nowhere.
func TestRoutes(t *testing.T) {
	l, err := net.Listen("tcp", anyPort)
	if err != nil {
		t.Fatal(err)
	}
	own := l.Addr().String()
	l.Close()
	cfg := config(t, fmt.Sprintf(`cluster { name: c, listen: %q, routes: ["nats://%[1]s", "nats://user:secret@127.0.0.1:1"] }`, own))
	cfg.Name = "a"
	s := start(t, cfg)
	want := map[string]string{own: connect(t, s).ConnectedServerId(), "127.0.0.1:1": ""}
	if got := s.Routes(t.Context()); !maps.Equal(got, want) {
		t.Errorf("the routes are %v, want %v", got, want)
	}
	if got := start(t, config(t, "")).Routes(t.Context()); len(got) > 0 {
		t.Errorf("a server alone has the routes %v", got)
	}
}

// nats-server deletes the streams of a single server that becomes one of a cluster. So they are moved away first, once.
func TestSingleServerJoinsCluster(t *testing.T) {
	alone := config(t, "")
	alone.StoreDir = filepath.Join(alone.StoreDir, "leaf[1]")
	s := start(t, alone)
	bucket(t, connect(t, s))
	s.Close()
	clustered := config(t, `cluster { name: c, listen: "127.0.0.1:-1", routes: ["nats://127.0.0.1:1"] }`)
	clustered.Name, clustered.StoreDir = "a", alone.StoreDir
	for range 2 {
		start(t, clustered).Close()
		kept, err := fs.Glob(os.DirFS(alone.StoreDir), "jetstream.single-*/$G/streams/KV_TEST")
		if err != nil || len(kept) != 1 {
			t.Errorf("the streams of the single server: %v, %v", kept, err)
		}
	}
	// Without its cluster the server would serve as if the streams of the cluster were lost.
	if err := startError(t, alone); !strings.Contains(err.Error(), "has no cluster") {
		t.Error(err)
	}
}
