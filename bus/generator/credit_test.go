package generator

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
)

// gated is a member of a queue group with a window that answers while its gate is open.
type gated struct {
	*credit
	mu   sync.Mutex   // held: the gate is shut
	read atomic.Int64 // requests
}

func newGated(t *testing.T, s *embedded.Server, window int64) *gated {
	t.Helper()
	g := new(gated)
	g.credit = &credit{conn: natskit.Connect(t, s), subject: "gated", window: new(atomic.Int64),
		handle: func(msg *nats.Msg) {
			g.read.Add(1)
			g.mu.Lock()
			defer g.mu.Unlock()
			if err := msg.Respond(msg.Data); err != nil {
				t.Errorf("an answer: %v", err)
			}
		}}
	g.window.Store(window)
	if err := g.grant(); err != nil {
		t.Fatal(err)
	}
	g.flush(t)
	return g
}

func (g *gated) flush(t *testing.T) {
	t.Helper()
	if err := g.conn.FlushTimeout(testkit.Patience); err != nil {
		t.Fatal(err)
	}
}

// askGated sends requests at once, and returns how many were answered, and how many NATS refused.
func askGated(t *testing.T, nc *nats.Conn, n int, sent func()) (answered, refused int) {
	t.Helper()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := nc.PublishRequest("gated", inbox, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.FlushTimeout(testkit.Patience); err != nil {
		t.Fatal(err)
	}
	sent()
	for answered+refused < n {
		switch _, err := sub.NextMsg(testkit.Patience); {
		case errors.Is(err, nats.ErrNoResponders):
			refused++
		case err != nil:
			t.Fatalf("%d were answered, %d refused, of %d: %v", answered, refused, n, err)
		default:
			answered++
		}
	}
	return answered, refused
}

// NATS passes on as many requests as the window has room for, and refuses others at once. When those are read, it passes on more.
func TestCreditBoundsWhatWaits(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	const window = 2000
	g, nc := newGated(t, s, window), natskit.Connect(t, s)
	for range 5 {
		g.mu.Lock()
		// Each subscription has read a request, and waits at the gate. That makes too little room for another subscription.
		if answered, _ := askGated(t, nc, 2*window, g.mu.Unlock); answered <= window-window/chunks || answered > window {
			t.Fatalf("%d were answered", answered)
		}
		g.flush(t)
	}
}

// Callers who wait for each answer are all answered, however often NATS ends a subscription. The window must be larger than what
// others send while NATS hands on one request: it may have chosen among subscriptions that end meanwhile.
func TestCreditIsRenewed(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	g := newGated(t, s, fewRequests)
	var wg sync.WaitGroup
	for range 4 {
		nc := natskit.Connect(t, s)
		wg.Go(func() {
			for range 4000 {
				if _, err := nc.Request("gated", nil, testkit.Patience); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	g.credit.mu.Lock()
	defer g.credit.mu.Unlock()
	if n := len(g.subs); n > 3*chunks {
		t.Errorf("%d subscriptions are kept", n)
	}
}

// A window that grows or shrinks counts when the old subscriptions have ended.
func TestCreditFollowsTheWindow(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	g, nc := newGated(t, s, 4000), natskit.Connect(t, s)
	for _, window := range []int64{2000, 6000, 2400} {
		g.window.Store(window)
		for range 40 { // never more at once than a subscription may pass on
			askGated(t, nc, 200, func() {})
			g.flush(t)
		}
		g.mu.Lock()
		answered, _ := askGated(t, nc, 10_000, g.mu.Unlock)
		if int64(answered) <= window-window/chunks || int64(answered) > window {
			t.Errorf("window %d: %d were answered", window, answered)
		}
		g.flush(t)
	}
}

// What was received is answered after the member has left.
func TestCreditClose(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	g, nc := newGated(t, s, 100), natskit.Connect(t, s)
	g.mu.Lock()
	answered, refused := askGated(t, nc, 60, func() {
		g.flush(t)
		if err := g.close(); err != nil {
			t.Errorf("close: %v", err)
		}
		g.flush(t)
		if _, err := nc.Request("gated", nil, testkit.Patience); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("a request after close: %v", err)
		}
		g.mu.Unlock()
	})
	if answered != 60 || refused != 0 {
		t.Errorf("%d were answered, %d refused", answered, refused)
	}
	g.flush(t)
	if _, err := nc.Request("gated", nil, testkit.Patience); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("a request when all have been answered: %v", err)
	}
	testkit.Eventually(t, "the subscriptions to end", func() bool { return g.conn.NumSubscriptions() == 0 })
	if err := g.close(); err != nil {
		t.Errorf("close again: %v", err)
	}
}

// After reconnects NATS passes requests on as before.
func TestCreditAfterReconnect(t *testing.T) {
	t.Parallel()
	s := natskit.Start(t)
	g, nc := newGated(t, s, fewRequests), natskit.Connect(t, s)
	for range 5 {
		askGated(t, nc, 100, func() {})
		before := g.conn.Stats().Reconnects
		if err := g.conn.ForceReconnect(); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "a reconnect", func() bool { return g.conn.IsConnected() && g.conn.Stats().Reconnects > before })
		read := g.read.Load()
		testkit.Eventually(t, "requests to come through the new connection", func() bool {
			for range 200 {
				_, _ = nc.Request("gated", nil, 100*ms) // NATS may pass some on to the old one
			}
			return g.read.Load() > read+2*fewRequests
		})
	}
}

// A service that may have a limit in a cluster subscribes for it to subjects that no generator without a limit subscribes to.
func TestSubjectsOfALimit(t *testing.T) {
	t.Parallel()
	s := newSegments(new(Generator))
	if !s.limitable() || s.bounded["segment"] == nil {
		t.Fatal("segments have no limit")
	}
	for _, subjects := range s.bounded {
		for _, endpoint := range s.endpoints {
			if slices.Contains(subjects, endpoint) {
				t.Errorf("%s is the subject of an endpoint", endpoint)
			}
		}
	}
	alone := Config{Conn: new(nats.Conn)} // not in a cluster
	if s := (&issuer{g: &Generator{cfg: alone}, kind: SnowflakeKind}); !s.limitable() {
		t.Error("snowflakes have no limit at a server without a cluster")
	}
}
