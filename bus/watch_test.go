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

// A change by an operator has all the time of its context, and is not retried.
func TestAttemptAtAChange(t *testing.T) {
	t.Parallel()
	u := newUnderTest(t, Timeout(5*leastAttempt))
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
	case <-time.After(10 * leastAttempt):
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
	ask := func(ctx context.Context, subject string) error {
		_, _, err := c.ask(ctx, request{subject: subject})
		return err
	}
	if err := ask(far(t), "leaf.segment.secret"); !errors.Is(err, nats.ErrPermissionViolation) {
		t.Fatalf("it may ask for the secret: %v", err)
	}
	p.Hang(true)
	defer p.Hang(false)
	const most = 300 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	began := time.Now()
	if err := ask(ctx, "leaf.segment.order"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > testkit.Patience/2 {
		t.Errorf("the call lasted %v: %v", time.Since(began), err)
	}
}
