package installation

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"golang.org/x/mod/semver"
)

const (
	// leastVersion of a NATS server. Up to 2.9.20 a cluster accepts two writes that expect the same
	// revision (nats-server #4320), and before 2.11 a server that restarts under load can keep
	// other records than the rest (#6194).
	leastVersion = "v2.11.0"
	// slowTries is how often a connect is tried while the server or this machine is slow.
	slowTries = 5
)

// TooOld says that a NATS server must not be used, and what to do. It is one sentence.
type TooOld string

func (t TooOld) Error() string { return string(t) }

// Connect is [nats.Connect] for a generator. It uses no server that is older than 2.11. At the
// start the error is a [TooOld]. A connection that comes back at such a server leaves it at once.
// What an old server keeps that this one talks to, package kvstore refuses.
func Connect(log *slog.Logger, servers string, opts ...nats.Option) (*nats.Conn, error) {
	opts = append(opts, func(o *nats.Options) error {
		reconnected := o.ReconnectedCB
		o.ReconnectedCB = func(nc *nats.Conn) {
			if err := CheckServer(nc); err != nil {
				log.Warn("a NATS server is not used", "error", err)
				_ = nc.ForceReconnect() // an error: it is closed
			} else if reconnected != nil {
				reconnected(nc)
			}
		}
		return nil
	})
	nc, err := WhileSlow(func() (*nats.Conn, error) { return nats.Connect(servers, opts...) })
	if err == nil {
		if err = CheckServer(nc); err != nil {
			nc.Close()
		}
	}
	return nc, err
}

// CheckServer returns a [TooOld] if the server that nc is connected to is too old for generators.
func CheckServer(nc *nats.Conn) error {
	return checkVersion(nc.ConnectedServerName()+" at "+nc.ConnectedUrlRedacted(), nc.ConnectedServerVersion())
}

// checkVersion returns a [TooOld] if a server must not be used. A pre-release is older than its
// release, and what is no version is older than all.
func checkVersion(server, version string) error {
	if semver.Compare("v"+strings.TrimPrefix(version, "v"), leastVersion) >= 0 {
		return nil
	}
	printable := strings.Trim(strconv.Quote(version), `"`)
	return TooOld(fmt.Sprintf("the NATS server %s has version %s, and generators can repeat IDs with versions before "+
		"%s: upgrade every NATS server to %[3]s or later", server, printable, leastVersion[1:]))
}

// WhileSlow calls connect, which is nats.Connect or the like, again if it failed because something
// was slow. The embedded server sends a PING of its own a second after a client came, others after
// two. If the client's greeting takes longer than that, the PING is there before the PONG that
// nats.go waits for, and nats.go takes that for an error. It has no type.
func WhileSlow(connect func() (*nats.Conn, error)) (nc *nats.Conn, err error) {
	for range slowTries {
		if nc, err = connect(); err == nil || !strings.Contains(err.Error(), "expected 'PONG', got 'PING'") {
			break
		}
	}
	return nc, err
}
