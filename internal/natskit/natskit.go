// Package natskit starts private NATS servers for tests, and connects to them.
package natskit

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/testkit"
)

// Start starts a private NATS server with JetStream, which ends with the test.
func Start(tb testing.TB) *embedded.Server {
	tb.Helper()
	s, err := embedded.Start(embedded.Config{Listen: "127.0.0.1:0", StoreDir: tb.TempDir(), Log: testkit.Quiet})
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
