package gateway

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/generator"
)

// maxHeader and maxBody bound a request, in bytes. No request needs a body.
const (
	maxHeader = 16 << 10
	maxBody   = 4 << 10
)

// limits bound what callers can hold on to.
type limits struct {
	conns  int           // open at a time; others wait until one is closed
	header time.Duration // for the header of a request to come
	read   time.Duration // for all of it
	write  time.Duration // for the answer, the longest wait for IDs (a minute) included
	idle   time.Duration // of a connection, between two requests
	// refusing is how long, after the DrainTimeout, the generator may take to refuse what still
	// waits: it first leaves the bus, which may hang.
	refusing time.Duration
}

var defaultLimits = limits{
	conns: 4096, header: 5 * time.Second, read: 10 * time.Second, write: 90 * time.Second, idle: 2 * time.Minute,
	refusing: 8 * time.Second,
}

// Generator is what gives the IDs: a [bus.Generator].
type Generator interface {
	Take(ctx context.Context, tag string, n int64) ([]bus.Range, error)
	Snowflakes(ctx context.Context, n int64) ([]bus.Range, error)
	Decode(text string) (bus.Decoded, error)
	Initialised() bool
	Readiness() bus.Readiness
	Wanted(kind generator.Kind) bool
	State() bus.State
}

// Config says how a [Server] works. All fields but Token and TLS are needed.
type Config struct {
	Listener  net.Listener
	Generator Generator
	Client    *bus.Client // to ask the other generators
	Metrics   *Metrics    // which also observes the Generator
	Log       *slog.Logger

	// Token is what callers must show: as a bearer token, or as the password of
	// basic authentication. Health checks need none. Empty: nobody needs one.
	Token string
	// TLS is how the server proves itself. Default: no TLS.
	TLS *tls.Config
	// Dead says why only a restart of the process helps; nil: it needs none. Default: it never does.
	Dead func() error
	// DrainTimeout is how long requests that are under way when the server is to
	// stop may still take.
	DrainTimeout time.Duration
}

// Server is the HTTP face.
type Server struct {
	cfg    Config
	addr   string // that callers name as host, as a rule
	limits limits
	ids    ids
	views  *views
	pages  http.Handler // all but the IDs
}

// New returns a server that serves when Run is called.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, addr: cfg.Listener.Addr().String(), limits: defaultLimits, ids: ids{cfg.Generator, cfg.Metrics}, views: newViews(cfg)}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", s.healthz)
	mux.HandleFunc("/readyz", s.readyz)
	for _, kind := range []generator.Kind{generator.SegmentKind, generator.SnowflakeKind} {
		mux.HandleFunc("/readyz/"+kind.String(), s.wanted(kind))
	}
	mux.Handle("/metrics", cfg.Metrics.handler(cfg.Generator))
	mux.HandleFunc("/decodeSnowflakeId", s.decode)
	s.views.register(mux)
	registerFiles(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, http.StatusNotFound, "not_found", "there is nothing here: the dashboard is at /, and IDs are below /api/")
	})
	s.pages = mux
	return s
}

// URL is where the server is.
func (s *Server) URL() string {
	if s.cfg.TLS != nil {
		return "https://" + s.cfg.Listener.Addr().String()
	}
	return "http://" + s.cfg.Listener.Addr().String()
}

// Run serves until the context is done, answers what is under way, and closes the
// listener. An error says why it cannot serve.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	following := make(chan struct{})
	go func() {
		defer close(following)
		s.views.feed.run(ctx)
	}()
	defer func() { cancel(); <-following }()

	var unused unused
	server := &http.Server{
		ConnState:         unused.note,
		Handler:           s,
		TLSConfig:         s.cfg.TLS,
		ReadHeaderTimeout: s.limits.header,
		ReadTimeout:       s.limits.read,
		WriteTimeout:      s.limits.write,
		IdleTimeout:       s.limits.idle,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() {
		listener := netutil.LimitListener(s.cfg.Listener, s.limits.conns)
		if s.cfg.TLS != nil {
			failed <- server.ServeTLS(listener, "", "")
		} else {
			failed <- server.Serve(listener)
		}
	}()
	select {
	case err := <-failed:
		_ = server.Close() // without this, open connections would still be served
		return err
	case <-ctx.Done():
	}
	late, stop := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.DrainTimeout+s.limits.refusing)
	defer stop()
	server.RegisterOnShutdown(unused.close)
	if err := server.Shutdown(late); err != nil {
		s.cfg.Log.Warn("requests over HTTP are cut off", "error", err)
		_ = server.Close() // of what is closed already
	}
	<-failed
	return nil
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h["Cache-Control"] = noStore // an answer from a cache would repeat an ID
	if !s.admit(w, r) {
		return
	}
	// Not by the mux, which would clean paths: a//b and a/./b are tags of their own.
	if tag, ok := strings.CutPrefix(r.URL.Path, segmentPath); ok {
		s.ids.segment(w, r, tag)
		return
	}
	if key, ok := strings.CutPrefix(r.URL.Path, snowflakePath); ok {
		s.ids.snowflake(w, r, key)
		return
	}
	h["X-Content-Type-Options"] = nosniff
	h["Content-Security-Policy"] = policy
	h["Referrer-Policy"] = noReferrer
	h["X-Frame-Options"] = deny
	h["Cross-Origin-Opener-Policy"] = sameOrigin
	h["Cross-Origin-Resource-Policy"] = sameOrigin
	s.pages.ServeHTTP(w, r)
}
