package bus_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// A client of Connect has a connection to each of two servers. One that stays silent costs three calls a delay, and
// one that goes costs none. A call that waits ends soon after Close.
func TestConnect(t *testing.T) {
	t.Parallel()
	var servers []*embedded.Server
	var silent [2]atomic.Bool
	conf := filepath.Join(t.TempDir(), "nats.conf")
	err := os.WriteFile(conf, []byte(`authorization { users: [{user: all, password: p}, {user: shop, password: p}] }`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	var urls []string
	for i := range 2 {
		s := natskit.StartWith(t, embedded.Config{ConfigFile: conf, User: "all", Password: "p"})
		servers = append(servers, s)
		urls = append(urls, strings.Replace(s.ClientURL(), "//", "//shop:p@", 1))
		answers(t, s, "leaf.segment.order", func(int64, *nats.Msg) *nats.Msg {
			if silent[i].Load() {
				return nil
			}
			return ids("1")
		}, nats.UserInfo("all", "p"))
	}
	c, err := bus.Connect(urls...)
	if err != nil {
		t.Fatal(err)
	}
	take := func(what string) {
		t.Helper()
		for range 10 {
			if _, err := c.Tag("order").Next(testkit.Context(t)); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	for i := range 2 {
		silent[i].Store(true)
		take("a server is silent")
		silent[i].Store(false)
	}
	if s := c.Stats(); s.Hedges+s.Retries == 0 {
		t.Errorf("%+v: both servers were silent in turn", s)
	}
	servers[0].Close()
	take("a server is gone")
	silent[1].Store(true)
	ended := make(chan error)
	go func() { ended <- second(c.Take(testkit.Context(t), "order", 2)) }()
	testkit.Eventually(t, "the call waits", func() bool { return c.Stats().Requests > 30 })
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("a call that waited: %v", err)
	}
}

// A server that cannot be reached at first gets its connection later.
func TestConnectWhileAServerIsAway(t *testing.T) {
	t.Parallel()
	var silent atomic.Bool
	first := natskit.Start(t)
	answers(t, first, "leaf.segment.order", func(int64, *nats.Msg) *nats.Msg {
		if silent.Load() {
			return nil
		}
		return ids("1")
	})
	address := testkit.FreeAddress(t)
	c, err := bus.ConnectWith([]string{first.ClientURL(), "nats://" + address},
		[]nats.Option{nats.DontRandomize(), nats.ReconnectWait(10 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Take(testkit.Context(t), "order", 1); err != nil {
		t.Fatal(err)
	}
	silent.Store(true)
	second, err := embedded.Start(embedded.Config{Listen: address, StoreDir: t.TempDir(), Log: testkit.Quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(second.Close)
	answers(t, second, "leaf.segment.order", func(int64, *nats.Msg) *nats.Msg { return ids("2") })
	if got, err := c.Take(testkit.Context(t), "order", 1); err != nil || got[0].First != 2 {
		t.Errorf("%v, %v", got, err)
	}
}
