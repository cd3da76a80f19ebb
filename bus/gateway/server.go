package gateway

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/net/netutil"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/generator"
)

const (
	// maxHeader and maxBody bound a request, in bytes. No request needs a body.
	maxHeader = 16 << 10
	maxBody   = 4 << 10
	// maxConns is how many connections are open at a time. Others wait until one is closed.
	maxConns = 4096
	// refusing is how long, after the DrainTimeout, the generator may take to refuse waiting
	// requests: it leaves the bus before, which may hang.
	refusing = 8 * time.Second
)

// Bound sets the bounds of a [Server] on an HTTP server, also to compare another one with it.
func Bound(server *http.Server) {
	server.MaxHeaderBytes, server.ReadHeaderTimeout, server.ReadTimeout = maxHeader, 5*time.Second, 10*time.Second
	server.WriteTimeout = 90 * time.Second // the longest wait for IDs is a minute
	server.IdleTimeout = 2 * time.Minute
}

// Generator is what gives the IDs: a [generator.Generator].
type Generator interface {
	Take(ctx context.Context, tag string, n int64) ([]bus.Range, error)
	Order(tag string) allocator.Order
	Snowflakes(ctx context.Context, n int64) ([]bus.Range, error)
	Decode(text string) (bus.Decoded, error)
	Initialised() bool
	Readiness() admin.Readiness
	Wanted(kind generator.Kind) bool
	State() admin.State
	Buffers(ctx context.Context, req admin.BuffersRequest) (admin.BuffersPage, error)
}

// Config says how a [Server] works. The fields up to Dead are needed.
type Config struct {
	Listener  net.Listener
	Generator Generator
	JS        jetstream.JetStream // has the stream of events, and a connection to ask the other generators
	Metrics   *Metrics            // which also observes the Generator
	Log       *slog.Logger
	Tokens    func() Tokens // those that are valid now
	Dead      func() error  // why only a restart of the process helps, or nil

	// TLS is the server's certificate and settings. Default: no TLS.
	TLS *tls.Config
	// DrainTimeout is how long requests may still take that are under way when the server
	// begins to stop.
	DrainTimeout time.Duration
}

// Server is the HTTP server of a generator.
type Server struct {
	cfg    Config
	addr   string // the usual Host of a request
	local  bool   // only this machine can reach the Listener
	server *http.Server
	pages  http.Handler // all paths except those of IDs

	conns int // maxConns, but for tests
}

// New returns a server. Call Run.
func New(cfg Config) *Server {
	addr := cfg.Listener.Addr()
	s := &Server{cfg: cfg, addr: addr.String(), conns: maxConns}
	s.server = &http.Server{Handler: s, TLSConfig: cfg.TLS, ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn)}
	Bound(s.server)
	if tcp, ok := addr.(*net.TCPAddr); ok {
		s.local = tcp.IP.IsLoopback()
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", s.healthz)
	mux.HandleFunc("/readyz", s.readyz(func(ready admin.Readiness) bool { return ready.Ready }))
	for _, kind := range []generator.Kind{generator.SegmentKind, generator.SnowflakeKind} {
		// Whether this generator should get such requests: it can answer with IDs, or knows no
		// other one that can.
		mux.HandleFunc("/readyz/"+kind.String(), s.readyz(func(admin.Readiness) bool { return cfg.Generator.Wanted(kind) }))
	}
	mux.Handle("/metrics", cfg.Metrics.handler(cfg.Generator))
	mux.HandleFunc(decodePath, s.decode)
	registerViews(mux, cfg)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, http.StatusNotFound, "not_found", "not found: the dashboard is at /, and IDs are below /v1/ and /api/")
	})
	s.pages = mux
	return s
}

// URL is the server's address.
func (s *Server) URL() string {
	if s.cfg.TLS != nil {
		return "https://" + s.addr
	}
	return "http://" + s.addr
}

// Run serves until the context is done, answers the requests that are under way, and closes
// the listener. An error says why it cannot serve.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	go func() {
		listener := netutil.LimitListener(s.cfg.Listener, s.conns)
		if s.cfg.TLS != nil {
			failed <- s.server.ServeTLS(listener, "", "")
		} else {
			failed <- s.server.Serve(listener)
		}
	}()
	select {
	case err := <-failed:
		_ = s.server.Close() // without this, open connections would still be served
		return err
	case <-ctx.Done():
	}
	late, stop := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.DrainTimeout+refusing)
	defer stop()
	if err := s.server.Shutdown(late); err != nil {
		s.cfg.Log.Warn("requests over HTTP are aborted", "error", err)
		_ = s.server.Close()
	}
	<-failed
	return nil
}

// noStore is a value that all answers share: one of its own would cost an allocation.
var noStore = []string{"no-store"}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h["Cache-Control"] = noStore // an answer from a cache would repeat an ID
	if !s.admit(w, r) {
		return
	}
	if isV1(r) || strings.HasPrefix(r.URL.Path, leafPath) {
		s.ids(w, r) // not by the mux, which cleans paths: a//b and a/./b are different tags
		return
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	s.pages.ServeHTTP(w, r)
}

// healthz answers 200 if the process is alive, and 503 if only a restart of it helps.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	if s.cfg.Dead() != nil {
		http.Error(w, "only a restart of this process helps", http.StatusServiceUnavailable)
		return
	}
	w.Header()["Content-Type"] = plainType
	_, _ = w.Write([]byte("ok"))
}

// readyz answers 200 if the generator is ready, else 503, and what is missing. Only
// operators see the reasons, which name hosts.
func (s *Server) readyz(is func(admin.Readiness) bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ready, status := s.cfg.Generator.Readiness(), http.StatusServiceUnavailable
		if ready.Ready = is(ready); ready.Ready {
			status = http.StatusOK
		}
		if s.rights(r) != operator {
			ready.Reasons = nil
		}
		write(w, status, ready)
	}
}
