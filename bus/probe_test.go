package bus

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/testkit"
)

// probes reports whether an attempt of any client probes.
func probes() bool {
	stacks := make([]byte, 1<<22)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), ".(*attempt).probe(")
}

// A probe ends with the call that it is for, also while it waits for another call's. (This
// test is not parallel: other tests' clients probe, too.)
func TestProbeEndsWithItsCall(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(conf, []byte(`authorization { users: [
		{user: all, password: p}
		{user: some, password: p, permissions: {publish: {deny: ["leaf.segment.secret"]}}}
	] }`), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := embedded.Start(embedded.Config{Listen: "127.0.0.1:0", ConfigFile: conf, StoreDir: t.TempDir(), User: "all", Password: "p", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var conns []*nats.Conn
	for _, user := range []string{"some", "all"} {
		nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(user, "p"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		conns = append(conns, nc)
	}
	asked := make(chan *nats.Msg, 100)
	if _, err := conns[1].ChanSubscribe("leaf.segment.order", asked); err != nil { // which answers nothing
		t.Fatal(err)
	}
	if err := conns[1].Flush(); err != nil {
		t.Fatal(err)
	}

	c := NewClient(conns[0])
	c.probing <- struct{}{} // another call's probe lasts
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	took := make(chan error, 1)
	go func() {
		_, err := c.Take(ctx, "order", 1)
		took <- err
	}()
	<-asked
	if err := conns[0].Publish("leaf.segment.secret", nil); err != nil { // its denial hides what else is denied
		t.Fatal(err)
	}
	testkit.Eventually(t, "it probes", probes)
	cancel()
	select {
	case err := <-took:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(testkit.Patience):
		t.Fatal("the call goes on")
	}
	if probes() {
		t.Error("the call has ended, and its probe has not")
	}
}
