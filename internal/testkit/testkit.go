// Package testkit has what the tests of many packages need: waiting for a condition, a quiet
// log, a search for goroutines that are left, a private NATS server and connections to it.
package testkit

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/leafbus/leafbus/bus/embedded"
)

// Patience bounds each wait of a test. It is no measure of speed.
const Patience = 20 * time.Second

// Quiet is a log that nobody reads.
var Quiet = slog.New(slog.DiscardHandler)

// Main runs the tests of a package, and fails if they leave goroutines.
func Main(m *testing.M, options ...goleak.Option) {
	goleak.VerifyTestMain(m, append(options,
		// nats-server leaves two goroutines of a stream's store if the stream is made at the
		// moment in which the server ends.
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
	)...)
}

// Eventually waits until holds returns true. The test fails if it does not within Patience.
func Eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(Patience); time.Now().Before(end); <-tick.C {
		if holds() {
			return
		}
	}
	tb.Fatalf("it did not happen that %s", what)
}

// Context returns a context that ends after Patience, or with the test.
func Context(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(tb.Context(), Patience)
	tb.Cleanup(cancel)
	return ctx
}

// NATS starts a private NATS server with JetStream, which ends with the test.
func NATS(tb testing.TB) *embedded.Server {
	tb.Helper()
	s, err := embedded.Start(embedded.Config{Listen: "127.0.0.1:0", StoreDir: tb.TempDir(), Log: Quiet})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// Connect connects to a server until the test ends.
func Connect(tb testing.TB, s *embedded.Server, options ...nats.Option) *nats.Conn {
	tb.Helper()
	nc, err := nats.Connect(s.ClientURL(), options...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	return nc
}
