package generator

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// reconnected makes a connection reconnect, and returns when the server has its subscriptions.
func reconnected(t *testing.T, conn *nats.Conn) {
	t.Helper()
	before := conn.Stats().Reconnects
	if err := conn.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "a reconnect", func() bool { return conn.IsConnected() && conn.Stats().Reconnects > before })
	if err := conn.FlushTimeout(testkit.Patience); err != nil {
		t.Fatal(err)
	}
}

// However often the connection is lost while a member leaves a queue group, NATS passes requests on only to the members that answer.
func TestLeavingWhileTheConnectionIsLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ lost, late, again bool }{
		"it is not lost": {},
		"it is lost, and the member leaves again":  {lost: true},
		"it is lost, and the member has forgotten": {lost: true, late: true, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natskit.Start(t)
			conn, nc := natskit.Connect(t, s), natskit.Connect(t, s)
			reconnects := func() uint64 { return conn.Stats().Reconnects }
			var gate sync.Mutex
			reached := make(chan struct{}, 1000)
			old, err := conn.QueueSubscribe("gated", bus.QueueGroup, func(msg *nats.Msg) {
				reached <- struct{}{}
				gate.Lock()
				defer gate.Unlock()
				_ = msg.Respond(nil)
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := conn.FlushTimeout(testkit.Patience); err != nil {
				t.Fatal(err)
			}
			gate.Lock()
			if err := nc.PublishRequest("gated", "nobody", nil); err != nil {
				t.Fatal(err)
			}
			<-reached
			if _, err := conn.QueueSubscribe("gated", bus.QueueGroup, func(msg *nats.Msg) { _ = msg.Respond(nil) }); err != nil {
				t.Fatal(err)
			}

			l := make(leaving)
			l.note(reconnects(), old)
			if err := old.Drain(); err != nil {
				t.Fatal(err)
			}
			if c.lost {
				reconnected(t, conn)
			}
			if !c.late {
				if l.again(reconnects) || len(l) != 1 {
					t.Errorf("before it has left, %d leave", len(l))
				}
				if err := conn.FlushTimeout(testkit.Patience); err != nil {
					t.Fatal(err)
				}
				allAnswered(t, nc) // none waits at the gate
			}
			gate.Unlock()
			testkit.Eventually(t, "it to be gone", func() bool { return !old.IsValid() })
			if again := l.again(reconnects); again != c.again || len(l) != 0 {
				t.Errorf("reconnect: %v, and %d leave", again, len(l))
			}
			if c.again {
				reconnected(t, conn)
			}
			allAnswered(t, nc)
		})
	}
}

// allAnswered sends requests that must all be answered.
func allAnswered(t *testing.T, nc *nats.Conn) {
	t.Helper()
	for range 50 { // one member of two would get none of them once in 2^50 runs
		if _, err := nc.Request("gated", nil, 5*time.Second); err != nil {
			t.Fatal(err)
		}
	}
}

// The subscriptions of a service can be found in this version of nats.go.
func TestEndpointSubscriptions(t *testing.T) {
	t.Parallel()
	service, err := micro.AddService(natskit.Connect(t, natskit.Start(t)), micro.Config{Name: "gated", Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	subjects := map[string]bool{}
	for _, subject := range []string{"one", "two"} {
		if err := service.AddEndpoint(subject, micro.HandlerFunc(func(micro.Request) {})); err != nil {
			t.Fatal(err)
		}
	}
	subs := endpointSubscriptions(service)
	for _, sub := range subs {
		subjects[sub.Subject] = sub.IsValid()
	}
	if len(subs) != 2 || !subjects["one"] || !subjects["two"] {
		t.Errorf("it has %v", subjects)
	}
	if err := errors.Join(service.Stop(), service.Stop()); err != nil {
		t.Error(err)
	}
	testkit.Eventually(t, "them to end", func() bool { return !subs[0].IsValid() && !subs[1].IsValid() })
	if len(endpointSubscriptions(nil)) != 0 {
		t.Error("no service has subscriptions")
	}
}
