// Package natskit starts private NATS servers for tests, and connects to them.
package natskit

import (
	"cmp"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/testkit"
)

// Start starts a private NATS server with JetStream, which ends with the test.
func Start(tb testing.TB) *embedded.Server {
	tb.Helper()
	return StartWith(tb, embedded.Config{})
}

// StartWith is [Start] with some settings. The address, the folder and the log need not be set.
func StartWith(tb testing.TB, cfg embedded.Config) *embedded.Server {
	tb.Helper()
	cfg.Listen, cfg.StoreDir = cmp.Or(cfg.Listen, "127.0.0.1:0"), cmp.Or(cfg.StoreDir, tb.TempDir())
	cfg.Log = cmp.Or(cfg.Log, testkit.Quiet)
	s, err := embedded.Start(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// Connect connects to a server until the test ends.
func Connect(tb testing.TB, s *embedded.Server, options ...nats.Option) *nats.Conn {
	tb.Helper()
	nc, err := Dial(s.ClientURL(), options...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	return nc
}

// Dial connects as nats.Connect does, and again if the machine was too slow for that. A server that
// stands still for 2 s sends its own PING before it answers that of the client, and nats.go takes
// that for an error.
func Dial(url string, options ...nats.Option) (nc *nats.Conn, err error) {
	for end := time.Now().Add(testkit.Patience); time.Now().Before(end); {
		nc, err = nats.Connect(url, options...)
		if err == nil || !errors.Is(err, nats.ErrTimeout) && !strings.Contains(err.Error(), "expected 'PONG', got 'PING'") {
			break
		}
	}
	return nc, err
}
