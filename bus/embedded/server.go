package embedded

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/wire"
)

const (
	// slowStart is when a start that still recovers JetStream's store logs that.
	slowStart = 10 * time.Second
	// readyTimeout bounds the wait for the listeners after that recovery.
	readyTimeout = 10 * time.Second
	// routeAnswers is how long a server may take to answer at a route.
	routeAnswers = time.Second
)

// ErrAddressInUse is returned by [Start] when another process, often a second generator, has an
// address that the server is to listen on. The error that wraps it names the address.
var ErrAddressInUse = errors.New("address already in use")

// Server is a running NATS server. Its methods may be called concurrently.
type Server struct {
	ns     *server.Server
	cfg    Config
	url    string
	dir    string // of JetStream
	log    *logger
	routes []string      // of the configuration, by host and port
	secure *tls.Config   // TLS of routes; nil: they have none
	free   atomic.Uint64 // bytes on the disk of dir, at the last check

	health   health
	life     context.Context // of the checks
	end      context.CancelFunc
	checking sync.WaitGroup
}

// Start runs a server and returns when clients can connect. If it fails, nothing is left running.
//
// It takes as long as JetStream needs to recover its store, because
// nats-server cannot stop in the middle of that; the log says so after ten
// seconds. Listeners that do not open within ten more are an error.
func Start(cfg Config) (*Server, error) {
	s, opts, err := newServer(cfg)
	if err != nil {
		return nil, err
	}
	if err := s.start(opts); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Check returns the errors of [Start] that it can find without writing anything: those of the
// configuration, an open listener, an address in use.
func Check(cfg Config) error {
	s, _, err := newServer(cfg)
	if err == nil {
		s.Close()
	}
	return err
}

// newServer returns a server that has not been started, if its configuration can work.
func newServer(cfg Config) (*Server, *server.Options, error) {
	ns, opts, err := guarded(cfg)
	if err != nil {
		return nil, nil, err
	}
	s := &Server{ns: ns, cfg: cfg, dir: cfg.StoreDir, log: &logger{out: cmp.Or(cfg.Log, slog.Default())},
		secure: opts.Cluster.TLSConfig.Clone()} // that of nil is nil
	s.health.restart = make(chan struct{})
	s.life, s.end = context.WithCancel(context.Background())
	for _, route := range opts.Routes {
		s.routes = append(s.routes, route.Host)
	}
	if err := checkAddress(opts); err != nil {
		s.Close()
		return nil, nil, err
	}
	return s, opts, nil
}

// guarded returns a server that does not run yet, if it lets nobody in from the network without
// credentials.
func guarded(cfg Config) (*server.Server, *server.Options, error) {
	opts, err := cfg.options()
	if err != nil {
		return nil, nil, ConfigError{err}
	}
	noAuthUser := opts.NoAuthUser
	ns, err := server.NewServer(opts)
	if err != nil {
		return nil, nil, fmt.Errorf("NATS server: %w", err)
	}
	// nats-server invents a user for clients without credentials if only the system account has
	// users.
	anonymous := opts.NoAuthUser != noAuthUser
	if anonymous && (cfg.User != "" || cfg.Token != "") {
		err = fmt.Errorf("%s has users only for the system account, so all other clients need no password: "+
			"add authorization for them there", cfg.ConfigFile)
	} else {
		err = checkExposure(opts, anonymous)
	}
	if err != nil {
		ns.Shutdown()
		return nil, nil, err
	}
	return ns, opts, nil
}

func (s *Server) start(opts *server.Options) error {
	if err := s.prepareStore(opts); err != nil {
		return err
	}
	s.ns.SetLoggerV2(s.log, opts.Debug, opts.Trace, opts.TraceVerbose)
	slow := time.AfterFunc(slowStart, func() {
		s.log.out.Warn("NATS is still recovering its JetStream store", "dir", s.dir)
	})
	s.ns.Start() // returns when the store is recovered and clients are accepted
	slow.Stop()
	if err := s.awaitReady(); err != nil {
		return err
	}
	s.url = dialable.Replace(s.ns.ClientURL())
	s.startChecks()
	return nil
}

// checkAddress finds an address in use before JetStream recovers its store.
func checkAddress(opts *server.Options) error {
	addr := net.JoinHostPort(opts.Host, strconv.Itoa(opts.Port))
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: %s", ErrAddressInUse, addr)
	}
	if err != nil {
		return fmt.Errorf("NATS server: %w", err)
	}
	return l.Close()
}

// awaitReady waits for every listener, or for the first fatal message, which carries only text.
func (s *Server) awaitReady() error {
	for deadline := time.Now().Add(readyTimeout); ; {
		text := s.log.fatal.Load()
		switch {
		case text != nil && strings.Contains(*text, syscall.EADDRINUSE.Error()):
			return fmt.Errorf("%w: %s", ErrAddressInUse, *text)
		case text != nil:
			return errors.New("NATS server: " + *text)
		case s.ns.ReadyForConnections(100 * time.Millisecond):
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("NATS server is not ready for connections after %v; its log may say why", readyTimeout)
		}
	}
}

// dialable names an address that this machine can dial: a server that listens
// on every interface has none of its own.
var dialable = strings.NewReplacer("//0.0.0.0:", "//127.0.0.1:", "//[::]:", "//127.0.0.1:")

// ClientURL is where clients on this machine find the server, such as
// nats://127.0.0.1:4222, or tls://127.0.0.1:4222. It carries no credentials.
func (s *Server) ClientURL() string { return s.url }

// InProcess makes [nats.Connect] use memory instead of TCP, whatever the URL, which must not begin
// with tls://. Credentials are demanded as of any client; wrong ones fail at once with
// [nats.ErrAuthorization].
func (s *Server) InProcess() nats.Option { return nats.InProcessServer(provider{s.ns}) }

// Routes returns the ID of the server at each route of the configuration, by host and port:
// [nats.Conn.ConnectedServerId] of that server's clients. The ID is empty if no server answers. The
// server's own address may be among the routes.
func (s *Server) Routes(ctx context.Context) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, routeAnswers)
	defer cancel()
	return wire.ServerIDs(ctx, s.routes, s.secure)
}

// Reload reads the configuration file again, and takes what can change while the server runs:
// users, permissions, accounts, certificates. A client of a user that is gone is disconnected, the
// others stay. If anything else differs, or the user is that of Config, it is an error, and all is
// as before.
func (s *Server) Reload() error {
	opts, err := s.cfg.options()
	if err != nil {
		return err
	}
	if opts.CustomClientAuthentication != nil {
		return fmt.Errorf("%s has no users, and --user or --token makes one: the server reads it at the start only",
			s.cfg.ConfigFile)
	}
	trial, _, err := guarded(s.cfg)
	if err != nil {
		return err
	}
	trial.Shutdown()
	if err := s.ns.ReloadOptions(opts); err != nil {
		return fmt.Errorf("NATS configuration file %s: %w: restart the generator", s.cfg.ConfigFile, err)
	}
	return nil
}

// Close stops the server and waits until all of it has stopped. Connections
// should be drained before. Closing again does nothing.
func (s *Server) Close() {
	s.end()
	s.ns.Shutdown()
	s.ns.WaitForShutdown()
	s.checking.Wait()
}
