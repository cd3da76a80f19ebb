package natsversion

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

const (
	// lookEvery is how often the list of servers is compared with the last one. A
	// server of the cluster that restarts leaves the list and comes back. The handler of
	// nats.go for discovered servers reports only addresses that it has never seen.
	lookEvery = time.Second
	// checkEvery is how often the servers are asked although the list is the same:
	// servers that were named by URL never leave it. Most servers with TLS log each
	// question as a failed handshake, so they are asked less often.
	checkEvery    = 10 * time.Second
	checkTLSEvery = 5 * time.Minute
	// askTimeout bounds the question to one server; askAtOnce is how many are asked at a time.
	askTimeout = 2 * time.Second
	askAtOnce  = 16
	// greetingPatience is how long a server may take to greet after a connection was lost.
	greetingPatience = 2 * time.Second

	// leaderVersion is in the metadata of a stream that a server of 2.11 or later describes.
	leaderVersion = "_nats.ver"
)

// Watch knows the versions of the NATS servers that one connection uses, or may use
// after a failure.
type Watch struct {
	log     *slog.Logger
	refused chan error // the first Refusal

	connected atomic.Bool // there was a connection
	tlsFirst  bool        // set by Connect

	// Of the last Check. Check and Run own them; do not call both at the same time.
	known   []string // sorted
	checked time.Time

	mu     sync.Mutex
	warned map[string]bool // by what a warning is about: it was logged, and still holds
	tls    bool            // a server demands TLS, at least over the network
}

// New returns a Watch for one connection.
func New(log *slog.Logger) *Watch {
	return &Watch{log: log, refused: make(chan error, 1), warned: make(map[string]bool)}
}

// Connect is [nats.Connect], but returns a [Refusal] if it meets a server that must not be
// used. A server greets over WebSocket, and with TLS first, only after the handshake: [Watch.Check] and
// [Watch.Run] check such a server right after each connect.
func (w *Watch) Connect(servers string, opts ...nats.Option) (*nats.Conn, error) {
	opts = append(opts, func(o *nats.Options) error {
		w.tlsFirst = o.TLSHandshakeFirst
		if !w.tlsFirst && !slices.ContainsFunc(o.Servers, isWebSocket) {
			o.CustomDialer = redialer{dialer{o.Timeout, w.admit}, &w.connected}
		}
		return nil
	})
	nc, err := WhileSlow(func() (*nats.Conn, error) { return nats.Connect(servers, opts...) })
	if err == nil {
		w.connected.Store(true)
	}
	if refusal := w.takeRefusal(); refusal != nil {
		if err == nil {
			nc.Close() // of another server of the same NATS
		}
		return nil, refusal
	}
	return nc, err
}

// redialer is a dialer that waits less for a greeting once there was a connection. When that is lost,
// another server may be well, and must not wait for a frozen one.
type redialer struct {
	dialer
	connected *atomic.Bool
}

// Dial implements [nats.CustomDialer].
func (d redialer) Dial(network, address string) (net.Conn, error) {
	if d.connected.Load() {
		d.timeout = min(d.timeout, greetingPatience)
	}
	return d.dialer.Dial(network, address)
}

func isWebSocket(server string) bool {
	return strings.HasPrefix(server, "ws://") || strings.HasPrefix(server, "wss://")
}

// takeRefusal returns the [Refusal] of a server since it was last called, if any.
func (w *Watch) takeRefusal() error {
	select {
	case err := <-w.refused:
		return err
	default:
		return nil
	}
}

// admit checks a server that has just greeted.
func (w *Watch) admit(address string, g wire.Greeting) error {
	w.mu.Lock()
	w.tls = w.tls || g.TLS
	w.mu.Unlock()
	server := address
	if g.Name != "" && g.Name != g.ID {
		server = g.Name + " at " + address
	}
	if err := check(server, g.Version); err != nil {
		select {
		case w.refused <- err:
		default:
		}
		return err
	}
	w.warnIf(g.Cluster != "" && !isSound(g.Version), "old "+cmp.Or(g.ID, address),
		"a NATS server is older than 2.11: after a restart under load its copy of the tags can be behind; upgrade it",
		"server", server, "version", g.Version)
	return nil
}

// warnIf logs a warning about something if it holds, and again only after it did not.
func (w *Watch) warnIf(holds bool, what, text string, args ...any) {
	w.mu.Lock()
	isNew := holds && !w.warned[what]
	if holds {
		w.warned[what] = true
	} else {
		delete(w.warned, what)
	}
	w.mu.Unlock()
	if isNew {
		w.log.Warn(text, args...)
	}
}

// Check asks the servers that nc knows, and looks at the leaders of the buckets. An error
// is a [Refusal]. It takes up to 2 s for 16 servers that do not answer.
func (w *Watch) Check(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) error {
	w.known, w.checked = slices.Sorted(slices.Values(nc.Servers())), time.Now()
	var here string
	if u, err := url.Parse(nc.ConnectedUrl()); err == nil {
		here = u.Host
	}
	own := wire.Greeting{ID: nc.ConnectedServerId(), Name: nc.ConnectedServerName(), Version: nc.ConnectedServerVersion(), Cluster: nc.ConnectedClusterName()}
	if own.Version != "" && w.admit(here, own) != nil { // not checked yet if it came over WebSocket
		return w.takeRefusal()
	}
	var asking sync.WaitGroup
	slots := make(chan struct{}, askAtOnce)
	for _, server := range w.known {
		u, err := url.Parse(server)
		if err != nil || u.Host == here {
			continue
		}
		asking.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			w.ask(u)
		})
	}
	if isSound(own.Version) { // else a leader that names no version may be no older than this server
		asking.Go(func() { w.askLeaders(ctx, js) })
	}
	asking.Wait()
	return w.takeRefusal()
}

// ask reads the greeting of a server.
func (w *Watch) ask(server *url.URL) {
	err := errors.New("a server cannot be asked by WebSocket, or before TLS")
	heard := false
	if !w.tlsFirst && !isWebSocket(server.String()) {
		d := dialer{askTimeout, func(address string, g wire.Greeting) error {
			heard = true
			return w.admit(address, g) // which keeps the error
		}}
		conn, dialErr := d.Dial("tcp", server.Host)
		if err = dialErr; err == nil {
			conn.Close()
		}
	}
	w.warnIf(!heard, "silent "+server.Host,
		"the version of a NATS server is not known: make sure that it is "+least[1:]+" or later",
		"server", server.Host, "error", err)
}

// askLeaders looks at the leaders of the buckets. A leader may be a server that cannot be
// asked, for example behind a gateway.
func (w *Watch) askLeaders(ctx context.Context, js jetstream.JetStream) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for _, bucket := range []string{bus.BucketInstallation, bus.BucketTags, bus.BucketWorkers} {
		stream, err := js.Stream(ctx, "KV_"+bucket)
		if err != nil {
			continue // the bucket is missing, or has no leader now
		}
		info, leader := stream.CachedInfo(), ""
		if info.Cluster != nil {
			leader = info.Cluster.Leader
		}
		w.warnIf(info.Config.Metadata[leaderVersion] == "", "leader of "+bucket,
			"the NATS server that leads a bucket names no version, so it is older than 2.11: make sure that it is "+least[1:]+" or later",
			"bucket", bucket, "server", leader)
	}
}

// Run checks again until the context is done: after each reconnect, when the list of
// servers changes, and at intervals. If a server must be refused it closes the connection,
// so that nothing more is reserved, and returns the [Refusal]. Joining another server does
// not help: the refused one may lead the buckets.
func (w *Watch) Run(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) error {
	connected := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(connected)
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case err = <-w.refused: // by a reconnect
		case <-connected:
			err = w.Check(ctx, nc, js)
		case now := <-look.C:
			servers := slices.Sorted(slices.Values(nc.Servers()))
			if now.Sub(w.checked) >= w.every() || !slices.Equal(servers, w.known) {
				err = w.Check(ctx, nc, js)
			}
		}
		if err != nil {
			nc.Close()
			return err
		}
	}
}

// every is how often the same servers are asked.
func (w *Watch) every() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tls {
		return checkTLSEvery
	}
	return checkEvery
}

// Only returns the [Refusal] in err, if there is one: the other failures followed from it.
func Only(err error) error {
	if refusal, ok := errors.AsType[Refusal](err); ok {
		return refusal
	}
	return err
}
