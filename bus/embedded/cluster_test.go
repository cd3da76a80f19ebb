package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// A server of a cluster is not healthy before it has found the others, and one that lost its
// disk not before its replicas are back.
func TestHealthInCluster(t *testing.T) {
	var routes []string
	for range 3 {
		l, err := net.Listen("tcp", anyPort)
		if err != nil {
			t.Fatal(err)
		}
		routes = append(routes, l.Addr().String())
		l.Close()
	}
	cfgs := make([]Config, 3)
	servers := make([]*Server, 3)
	for i := range cfgs {
		cfgs[i] = config(t, fmt.Sprintf(`cluster { name: c, listen: %q, routes: ["nats://%s"] }`, routes[i], strings.Join(routes, `", "nats://`)))
		cfgs[i].Name = fmt.Sprint("s", i)
	}
	if err := start(t, config(t, "")).Health(); err != nil {
		t.Errorf("alone, when Start returns: %v", err)
	}
	servers[0] = start(t, cfgs[0])
	if err := servers[0].Health(); err == nil {
		t.Error("it is healthy without the others")
	}
	for i := 1; i < 3; i++ {
		servers[i] = start(t, cfgs[i])
	}
	for _, s := range servers {
		awaitHealth(t, s)
	}
	js, err := jetstream.New(connect(t, servers[1]))
	if err != nil {
		t.Fatal(err)
	}
	var kv jetstream.KeyValue
	for kv == nil { // a cluster that forms may answer late once
		kv, err = js.CreateOrUpdateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "LEAF_TAGS", Replicas: 3, History: 64})
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	for i := range 2000 {
		if _, err := kv.Put(t.Context(), fmt.Sprint(i), make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
	}
	servers[0].Close()
	cfgs[0].StoreDir = t.TempDir()
	s := start(t, cfgs[0])
	if err := s.Health(); err == nil {
		t.Error("it is healthy with an empty disk")
	}
	awaitHealth(t, s)
	if has := messages(t, s, "KV_LEAF_TAGS"); has != 2000 {
		t.Errorf("it is healthy with %d of 2000 messages", has)
	}
}

// awaitHealth waits until the server is healthy.
func awaitHealth(t *testing.T, s *Server) {
	t.Helper()
	looks := time.NewTicker(5 * time.Millisecond)
	defer looks.Stop()
	for deadline := time.Now().Add(40 * time.Second); s.Health() != nil; <-looks.C {
		if time.Now().After(deadline) {
			t.Fatalf("it does not become healthy: %v", s.Health())
		}
	}
}

// messages is how many messages of a stream the server itself has.
func messages(t *testing.T, s *Server, stream string) uint64 {
	t.Helper()
	info, err := s.ns.Jsz(&server.JSzOptions{Accounts: true, Streams: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, account := range info.AccountDetails {
		for _, has := range account.Streams {
			if has.Name == stream {
				return has.State.Msgs
			}
		}
	}
	return 0
}
