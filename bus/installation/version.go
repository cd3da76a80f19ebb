package installation

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/mod/semver"

	"github.com/leafbus/leafbus/internal/wire"
)

const (
	// leastVersion of a NATS server. Up to 2.9.20 a cluster accepts two writes that expect the same revision
	// (nats-server #4320), and before 2.11 a server that restarts under load can keep other records than the rest
	// (#6194).
	leastVersion = "v2.11.0"
	// greetingPatience is how long a server may take to greet once another one has: a frozen one must not hold up the
	// way to one that is well.
	greetingPatience = 2 * time.Second
	// slowTries is how often a connect is tried while the server or this machine is slow.
	slowTries = 5
)

// TooOld says that a NATS server must not be used, and what to do. It is one sentence.
type TooOld string

func (t TooOld) Error() string { return string(t) }

// Connect is [nats.Connect] for a generator. It uses no server that is older than 2.11, neither now nor when it
// connects again: it reads the version in the greeting before it sends anything. If there is no other server,
// the error is a [TooOld]. A server that greets over WebSocket, or after TLS, is checked only now.
// What an old server keeps that this one talks to, package kvstore refuses.
func Connect(log *slog.Logger, servers string, opts ...nats.Option) (*nats.Conn, error) {
	d := &dialer{log: log}
	opts = append(opts, func(o *nats.Options) error {
		webSocket := func(server string) bool { return strings.HasPrefix(server, "ws") }
		if !o.TLSHandshakeFirst && !slices.ContainsFunc(o.Servers, webSocket) {
			d.timeout, o.CustomDialer = o.Timeout, d
		}
		return nil
	})
	nc, err := WhileSlow(func() (*nats.Conn, error) { return nats.Connect(servers, opts...) })
	switch {
	case err != nil:
		return nil, cmp.Or(d.tooOld, err)
	case d.tooOld != nil:
		log.Warn("a NATS server is not used", "error", d.tooOld)
	}
	if err := CheckServer(nc); err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}

// CheckServer returns a [TooOld] if the server that nc is connected to is too old for generators.
func CheckServer(nc *nats.Conn) error {
	return checkVersion(nc.ConnectedServerName()+" at "+nc.ConnectedUrlRedacted(), nc.ConnectedServerVersion())
}

// checkVersion returns a [TooOld] if a server must not be used. A pre-release is older than its release.
func checkVersion(server, version string) error {
	switch v := "v" + strings.TrimPrefix(version, "v"); {
	case !semver.IsValid(v):
		return TooOld(fmt.Sprintf("the NATS server %s reports the version %q, and not one such as 2.11.9, so it may repeat "+
			"IDs: run a released nats-server, %s or later, on every server", server, version, leastVersion[1:]))
	case semver.Compare(v, leastVersion) < 0:
		return TooOld(fmt.Sprintf("the NATS server %s has version %s, and generators can repeat IDs with versions before "+
			"%s: upgrade every NATS server to %[3]s or later", server, version, leastVersion[1:]))
	}
	return nil
}

// dialer is a [nats.CustomDialer] that checks a server before the connection is used. The connection owns it, and
// dials one server at a time.
type dialer struct {
	log     *slog.Logger
	timeout time.Duration // for the next greeting
	greeted bool          // by a server that may be used
	tooOld  error         // the last server that was refused
}

// Dial implements [nats.CustomDialer].
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	deadline := time.Now().Add(d.timeout)
	conn, err := (&net.Dialer{Deadline: deadline}).Dial(network, address)
	if err != nil {
		return nil, err
	}
	g, text, ok, err := wire.ReadGreeting(conn, deadline)
	if err == nil && ok { // nats.go reports what is wrong with any other
		err = checkVersion(g.Name+" at "+address, g.Version)
		switch {
		case err == nil:
			d.timeout, d.greeted = min(d.timeout, greetingPatience), true
		case d.greeted && (d.tooOld == nil || d.tooOld.Error() != err.Error()):
			d.log.Warn("a NATS server is not used", "error", err)
			fallthrough
		default:
			d.tooOld = err
		}
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &greeted{conn, io.MultiReader(bytes.NewReader(text), conn)}, nil
}

// greeted is a connection of which the first bytes were read ahead.
type greeted struct {
	net.Conn
	all io.Reader
}

func (c *greeted) Read(p []byte) (int, error) { return c.all.Read(p) }

// WhileSlow calls connect, which is nats.Connect or the like, again if it failed because something was slow. The
// embedded server sends a PING of its own a second after a client came, others after two. If the client's greeting
// takes longer than that, the PING is there before the PONG that nats.go waits for, and nats.go takes that for an
// error. It has no type.
func WhileSlow(connect func() (*nats.Conn, error)) (nc *nats.Conn, err error) {
	for range slowTries {
		if nc, err = connect(); err == nil || !strings.Contains(err.Error(), "expected 'PONG', got 'PING'") {
			break
		}
	}
	return nc, err
}
