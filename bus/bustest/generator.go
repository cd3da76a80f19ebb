package bustest

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/bus/installation"
)

// Generator is a generator with a NATS server of its own, in this process. No
// two of them see each other. Its methods are safe for concurrent use.
type Generator struct {
	dir    string
	log    *slog.Logger
	server *embedded.Server
	conn   *nats.Conn
	tags   []allocator.Tag

	mu     sync.Mutex
	run    *run // nil: stopped
	closed bool
}

// Open starts a generator with these tags, each NAME or NAME:STEP, as `leaf serve
// --tag` has them. When it returns, IDs can be had; the first of each tag is 1. It is for
// TestMain and for examples; a test calls [Start].
//
// What the generator warns of goes to stderr.
func Open(tags ...string) (*Generator, error) {
	return open(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), tags)
}

// Start is [Open] for a test: it fails the test where Open returns an error, and
// closes the generator when the test ends. The generator's log is part of the
// test's, which go test shows if the test fails, or with -v.
func Start(t testing.TB, tags ...string) *Generator {
	t.Helper()
	log := &testLog{out: t.Output()}
	g, err := open(slog.New(slog.NewTextHandler(log, nil)), tags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		log.end()
	})
	return g
}

func open(log *slog.Logger, list []string) (_ *Generator, err error) {
	var tags []allocator.Tag
	for _, text := range list {
		t, err := allocator.ParseTag(text, allocator.DefaultMaxStep)
		if err != nil {
			return nil, fmt.Errorf("bustest: the tag %w", err)
		}
		tags = append(tags, t)
	}
	dir, err := os.MkdirTemp("", "leafbus-")
	if err != nil {
		return nil, fmt.Errorf("bustest: %w", err)
	}
	g := &Generator{dir: dir, log: log, tags: tags}
	if err := g.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("bustest: %w", err), g.Close())
	}
	return g, nil
}

func (g *Generator) open() (err error) {
	if g.server, err = embedded.Start(embedded.Config{
		Listen: "127.0.0.1:0", StoreDir: filepath.Join(g.dir, "nats"), Name: node, Log: g.log,
	}); err != nil {
		return err
	}
	if g.conn, err = installation.WhileSlow(func() (*nats.Conn, error) {
		return nats.Connect(g.server.ClientURL(), nats.Name("bustest"))
	}); err != nil {
		return err
	}
	return g.start()
}

// URL is where the NATS server is, on a free port of this machine: for a
// service that makes its own connection.
func (g *Generator) URL() string { return g.server.ClientURL() }

// Conn is a connection to the NATS server, which Close closes. It stays open
// while the generator is stopped.
func (g *Generator) Conn() *nats.Conn { return g.conn }

// Client is a client on Conn.
func (g *Generator) Client(opts ...bus.Option) *bus.Client {
	return bus.NewClient(g.conn, append([]bus.Option{bus.NoHedging()}, opts...)...)
}

// Stop ends the generator, as SIGTERM does: it answers what it has accepted, and
// is gone when Stop returns. The NATS server stays, so this is what callers meet when
// no generator runs. To stop one that is stopped does nothing.
func (g *Generator) Stop() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stop()
}

func (g *Generator) stop() error {
	if g.run == nil {
		return nil
	}
	err := g.run.stop()
	g.run = nil
	if err != nil {
		return fmt.Errorf("bustest: the generator failed: %w", err)
	}
	return nil
}

func (g *Generator) stopped() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.run == nil
}

// Restart starts the generator again, on its state; one that runs is stopped
// first. As with Open, IDs can be had when it returns.
func (g *Generator) Restart() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return errors.New("bustest: the generator is closed and its state is gone: Restart goes before Close")
	}
	if err := g.stop(); err != nil {
		return err
	}
	if err := g.start(); err != nil {
		return fmt.Errorf("bustest: %w", err)
	}
	return nil
}

// Close ends the generator, the connection and the NATS server, and removes all
// state. When it returns nothing is left of them; to close again does nothing.
func (g *Generator) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	err := g.stop()
	if g.conn != nil {
		g.conn.Close()
	}
	if g.server != nil {
		g.server.Close()
	}
	return errors.Join(err, os.RemoveAll(g.dir))
}
