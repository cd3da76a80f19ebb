package bus

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func TestPatience(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"": DefaultTimeout, "0": 0, "1500": 1500 * time.Millisecond, "4294967295": maxAdminTimeout,
	} {
		if got, err := readPatience(header); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", header, got, err, want)
		}
	}
	for _, header := range []string{"-1", "5s", "1e3", "99999999999999999999"} {
		if got, err := readPatience(header); err == nil {
			t.Errorf("%q is %v", header, got)
		}
	}
	if got := tellPatience(context.Background()); got != "" {
		t.Errorf("without a deadline: %q", got)
	}
	for _, patience := range []time.Duration{0, time.Second, DefaultTimeout, maxAdminTimeout} {
		if kept := answerTime(patience); kept > patience/10 || kept > maxAnswerTime {
			t.Errorf("of %v the answer has %v", patience, kept)
		}
	}
}

// The client says how long it waits, and only where it asks for administration.
func TestClientTellsPatience(t *testing.T) {
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
		case <-time.After(nextPatience):
			t.Fatal("no request came")
			return nil
		}
	}
	within := func(d time.Duration) string {
		return ask(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, d)
			defer cancel()
			u.DeleteTag(ctx, "order")
		}).Header.Get(headerTimeout)
	}
	if got, err := readPatience(within(time.Minute)); err != nil || got != maxAdminTimeout {
		t.Errorf("of a minute: %v, %v", got, err)
	}
	if got, err := readPatience(within(9 * time.Second)); err != nil || got <= 0 || got > 9*time.Second {
		t.Errorf("of nine seconds: %v, %v", got, err)
	}
	if got := ask(func(ctx context.Context) { u.Take(ctx, "order", 1) }).Header; len(got) > 0 {
		t.Errorf("a request for IDs has the header %v", got)
	}
}
