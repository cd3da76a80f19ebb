package bus

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus/internal/wire"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/nats-io/nats.go"
)

// An administrative request says how long the client waits. A request for IDs does not.
func TestClientSendsItsTimeout(t *testing.T) {
	u := newUnderTest(t, Timeout(time.Minute))
	ask := func(f func(context.Context)) *nats.Msg {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { f(ctx); close(done) }()
		defer func() { cancel(); <-done }()
		select {
		case msg := <-u.requests:
			return msg
		case <-time.After(testkit.Patience):
			t.Fatal("no request came")
			return nil
		}
	}
	within := func(d time.Duration) string {
		return ask(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, d)
			defer cancel()
			u.DeleteTag(ctx, "order")
		}).Header.Get(wire.HeaderTimeout)
	}
	if got := within(time.Minute); got != "10000" {
		t.Errorf("of a minute: %s ms", got)
	}
	if got, err := strconv.Atoi(within(9 * time.Second)); err != nil || got <= 0 || got > 9000 {
		t.Errorf("of nine seconds: %d ms, %v", got, err)
	}
	if got := timeoutHeader(context.Background()); got != "" {
		t.Errorf("without a deadline: %q", got)
	}
	if got := ask(func(ctx context.Context) { u.Take(ctx, "order", 1) }).Header; len(got) > 0 {
		t.Errorf("a request for IDs has the header %v", got)
	}
}
