package gateway

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/generator"
	"github.com/leafbus/leafbus/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// fakeGenerator gives what a test wants it to, also what a real one would not.
type fakeGenerator struct {
	err         error
	next        int64
	initialised bool
	readiness   admin.Readiness
	wanted      map[generator.Kind]bool
	taken       []string // tags that were asked for
	strict      string   // this tag is strict
	gap         bool     // a batch has a gap after its first ID
}

func (g *fakeGenerator) Take(_ context.Context, tag string, n int64) ([]bus.Range, error) {
	g.taken = append(g.taken, tag)
	return g.Snowflakes(context.Background(), n)
}

func (g *fakeGenerator) Order(tag string) allocator.Order {
	if tag == g.strict && len(g.taken) > 0 { // it is known once IDs were taken
		return allocator.Strict
	}
	return allocator.Trend
}

func (g *fakeGenerator) Snowflakes(_ context.Context, n int64) ([]bus.Range, error) {
	if g.err != nil {
		return nil, g.err
	}
	r := bus.Range{First: g.next + 1, Last: g.next + n}
	g.next = r.Last
	if g.gap && n > 1 {
		g.next++
		return []bus.Range{{First: r.First, Last: r.First}, {First: r.First + 2, Last: g.next}}, nil
	}
	return []bus.Range{r}, nil
}

func (g *fakeGenerator) Decode(string) (bus.Decoded, error) {
	return bus.Decoded{UnixMS: 1567733700834, Worker: 39, Sequence: 3448}, g.err
}

func (g *fakeGenerator) Initialised() bool            { return g.initialised }
func (g *fakeGenerator) Readiness() admin.Readiness   { return g.readiness }
func (g *fakeGenerator) Wanted(k generator.Kind) bool { return g.wanted[k] }
func (g *fakeGenerator) State() admin.State           { return admin.State{Node: "test", Readiness: g.readiness} }

func (g *fakeGenerator) Buffers(context.Context, admin.BuffersRequest) (admin.BuffersPage, error) {
	return admin.BuffersPage{}, nil
}

func jetStream(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// serve returns a server on g. Its bus is unavailable, unless change sets another JS.
func serve(t testing.TB, g Generator, change ...func(*Config)) *Server {
	t.Helper()
	nc, err := nats.Connect("nats://127.0.0.1:1", nats.RetryOnFailedConnect(true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	cfg := Config{Generator: g, JS: jetStream(t, nc), Metrics: NewMetrics(), Log: testkit.Quiet, Listener: nowhere{},
		Tokens: tokens("", ""), Dead: func() error { return nil }}
	for _, f := range change {
		f(&cfg)
	}
	return New(cfg)
}

// nowhere is the listener of a server that is asked without a connection.
type nowhere struct{ net.Listener }

func (nowhere) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// get asks the server without a connection.
func get(s http.Handler, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil)
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func method(name string) func(*http.Request) { return func(r *http.Request) { r.Method = name } }

// run lets the server serve until the test ends.
func run(t *testing.T, s *Server) (url string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	var err error
	stopped := false
	stop = func() error {
		if !stopped {
			stopped = true
			cancel()
			err = <-ended
		}
		return err
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return s.URL(), stop
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func unmarshal[T any](t *testing.T, data io.Reader) T {
	t.Helper()
	var v T
	d := json.NewDecoder(data)
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}
