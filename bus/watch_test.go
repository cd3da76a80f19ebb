package bus

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/proxy"
)

// After an attempt without an answer the next one may last twice as long, up to a bound. A request for
// many IDs has that bound at once.
func TestAttemptsLastLonger(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	u.first = 100 * time.Millisecond
	took := make(chan error)
	began := time.Now()
	go func() {
		_, err := u.Take(t.Context(), "order", 1)
		took <- err
	}()
	var came []time.Time
	for range 4 {
		msg := <-u.requests
		if came = append(came, time.Now()); len(came) == 4 {
			msg.Respond([]byte("7"))
		}
	}
	if err := <-took; err != nil {
		t.Error(err)
	}
	// All from the beginning: one that was received late would make the next one seem early.
	for i, least := 1, u.first; i < len(came); i, least = i+1, 2*least+u.first {
		if lasted := came[i].Sub(began); lasted < least {
			t.Errorf("%d attempts lasted %v, want %v at least", i, lasted, least)
		}
	}

	go func() {
		_, err := u.Take(t.Context(), "order", fewIDs+1)
		took <- err
	}()
	msg := <-u.requests
	select {
	case <-u.requests:
		t.Error("many IDs are asked for again as soon as few")
	case <-time.After(5 * u.first):
	}
	msg.Respond([]byte("1000-2000"))
	if err := <-took; err != nil {
		t.Error(err)
	}
}

// A change by an operator has all the time of its context, and is not retried.
func TestAttemptAtAChange(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t)
	u.first = 20 * time.Millisecond
	done := make(chan error)
	go func() {
		_, err := u.UpdateTag(far(t), TagUpdate{Tag: "order"})
		done <- err
	}()
	msg := <-u.requests
	select {
	case err := <-done:
		t.Fatalf("it gave up: %v", err)
	case <-u.requests:
		t.Error("it is asked for again")
	case <-time.After(10 * u.first):
	}
	msg.Respond([]byte(`{"tag":"order","max_id":"5"}`))
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A follower ends by the denial of its own requests, and not by others.
func TestFollowerAsks(t *testing.T) {
	f := &follower{eventOptions: eventOptions{name: "pager"}}
	for subject, want := range map[string]bool{
		"$JS.API.STREAM.INFO.LEAF_EVENTS":                         true,
		"$JS.hub.API.STREAM.INFO.LEAF_EVENTS":                     true,
		"$JS.API.CONSUMER.INFO.LEAF_EVENTS.pager":                 true,
		"$JS.API.CONSUMER.CREATE.LEAF_EVENTS.pager.leaf.events.>": true,
		"$JS.API.CONSUMER.MSG.NEXT.LEAF_EVENTS.pager":             true,
		"$JS.ACK.LEAF_EVENTS.pager.1.2.3.4.5":                     true,
		"$JS.API.CONSUMER.INFO.LEAF_EVENTS.pager2":                false,
		"$JS.ACK.LEAF_EVENTS.pager2.1.2.3.4.5":                    false,
		"$JS.API.STREAM.INFO.LEAF_EVENTS2":                        false,
		"$JS.API.STREAM.NAMES":                                    false,
		"leaf.segment.LEAF_EVENTS.pager":                          false,
	} {
		if got := f.asks(subject); got != want {
			t.Errorf("%s: %v", subject, got)
		}
	}
}

// An attempt lasts no longer than its limit and its context, even if NATS falls silent while it probes
// its permissions.
func TestAttemptEndsDuringItsProbe(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	users := `authorization { users: [{user: some, password: p, permissions: {publish: {deny: ["leaf.segment.secret"]}}}] }`
	if err := os.WriteFile(conf, []byte(users), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := embedded.Start(embedded.Config{Listen: "127.0.0.1:0", ConfigFile: conf, StoreDir: t.TempDir(), User: "some", Password: "p", Log: testkit.Quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	p, err := proxy.Start(strings.TrimPrefix(s.ClientURL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	nc, err := nats.Connect("nats://"+p.Addr(), nats.UserInfo("some", "p"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	c := NewClient(nc)
	if _, err := c.attempt(far(t), 0, "leaf.segment.secret", nil, ""); !errors.Is(err, nats.ErrPermissionViolation) {
		t.Fatalf("it may ask for the secret: %v", err)
	}
	p.Hang(true)
	defer p.Hang(false)
	const most = 300 * time.Millisecond
	attempt := func(ctx context.Context, limit time.Duration) {
		t.Helper()
		began := time.Now()
		_, err := c.attempt(ctx, limit, "leaf.segment.order", nil, "")
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > testkit.Patience/2 {
			t.Errorf("the attempt lasted %v: %v", took, err)
		}
	}
	attempt(far(t), most)
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	attempt(ctx, 0)
}
