package generator_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// After a limit, callers at other servers of a cluster reach the generators as before, down to the last one. NATS servers count the end of a subscription
// several times that ends by itself while several callers use it.
func TestLimitInACluster(t *testing.T) {
	t.Parallel()
	routes := []string{testkit.FreeAddress(t), testkit.FreeAddress(t)}
	var servers []*embedded.Server
	var mu sync.Mutex
	var starting sync.WaitGroup
	for i, route := range routes {
		file := filepath.Join(t.TempDir(), "nats.conf")
		text := fmt.Sprintf("server_name: s%d\ncluster { name: c, listen: %q, routes: [%q] }\n", i, route, "nats://"+routes[1-i])
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		starting.Go(func() { // each waits for the other
			s := natskit.StartWith(t, embedded.Config{ConfigFile: file, Name: fmt.Sprintf("s%d", i)})
			mu.Lock()
			defer mu.Unlock()
			servers = append(servers, s)
		})
	}
	starting.Wait()
	tags := memory(t, "order")
	g := start(t, servers[0], "a", tags, nil)
	start(t, servers[0], "b", tags, nil)
	far := natskit.Connect(t, servers[1])
	reached := func() bool {
		_, err := far.Request("leaf.segment.order", nil, time.Second) // one on its way may be lost while a subscription ends
		return err == nil
	}
	testkit.Eventually(t, "the other server to know the generator", reached)

	for range 3 {
		g.Limit(t.Context(), 40)
		var callers sync.WaitGroup
		for range 8 {
			nc := natskit.Connect(t, servers[0])
			callers.Go(func() {
				for range 20_000 {
					if err := nc.PublishRequest("leaf.segment.order", "nobody", nil); err != nil {
						t.Error(err)
						return
					}
				}
				if err := nc.FlushTimeout(testkit.Patience); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		g.Limit(t.Context(), 0)
		testkit.Eventually(t, "the other server to know them still", reached)
	}
	if err := g.stop(); err != nil {
		t.Error(err)
	}
	for range 20 {
		if _, err := far.Request("leaf.segment.order", nil, testkit.Patience); errors.Is(err, nats.ErrNoResponders) {
			t.Fatal("the other server does not know the generator that is left")
		}
	}
}
