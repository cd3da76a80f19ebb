// Package testkit has what the tests of many packages need: waiting for a condition, a quiet log,
// a search for leaked goroutines, addresses that are free. It imports no other package of Leafbus,
// so every package can use it. Package natskit adds NATS servers.
package testkit

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Patience bounds each wait of a test. It is long because only a broken test uses it up.
const Patience = 40 * time.Second

// Quiet is a log that is thrown away.
var Quiet = slog.New(slog.DiscardHandler)

// Main runs the tests of a package, eight at a time, and fails if they leak goroutines.
func Main(m *testing.M, options ...goleak.Option) {
	AtOnce(8)
	goleak.VerifyTestMain(m, append(options,
		// nats-server leaks two goroutines of a stream's store if the stream is created while the
		// server ends.
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
	)...)
}

// AtOnce lets n parallel tests of this package run at the same time, even on fewer processors. It
// is for tests that mostly wait. The flag -parallel overrides it. Call it in TestMain, before
// m.Run.
func AtOnce(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(max(n, runtime.GOMAXPROCS(0)))) // it is a number
	}
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
	tb.Fatalf("waited %v in vain for this: %s", Patience, what)
}

// ports are those that Listen has tried.
var ports sync.Map

// Listen listens on a port of this machine that the system gives to nobody who asks for any port.
// So the address stays free while a server that has it restarts. This process gets each port once.
func Listen() (net.Listener, error) {
	var failures []error
	for range 50 {
		port := 10240 + rand.IntN(32768-10240)
		if _, given := ports.LoadOrStore(port, true); given {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return l, nil
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

// FreeAddress returns a host:port where nothing listens. See [Listen].
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	l, err := Listen()
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Context returns a context that ends after Patience, or with the test.
func Context(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(tb.Context(), Patience)
	tb.Cleanup(cancel)
	return ctx
}
