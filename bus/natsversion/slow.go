package natsversion

import (
	"strings"

	"github.com/nats-io/nats.go"
)

// slowTries is how often a connect is tried while the server or this machine is slow.
const slowTries = 5

// WhileSlow calls connect, which is nats.Connect or the like, again if it failed because something was slow. The
// embedded server sends a PING of its own a second after a client came, others after two. If the client's greeting
// takes longer than that, the PING is there before the PONG that nats.go waits for, and nats.go takes that for an
// error.
func WhileSlow(connect func() (*nats.Conn, error)) (nc *nats.Conn, err error) {
	for range slowTries {
		if nc, err = connect(); err == nil || !pingFirst(err) {
			break
		}
	}
	return nc, err
}

// pingFirst knows the error by its text, because it has no type.
func pingFirst(err error) bool { return strings.Contains(err.Error(), "expected 'PONG', got 'PING'") }
