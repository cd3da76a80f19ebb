package natsversion

import (
	"net"
	"time"

	"github.com/leafbus/leafbus/bus/internal/wire"
)

// dialer is a [nats.CustomDialer] that reads the greeting before the connection is
// used. Where admit returns an error, there is no connection.
type dialer struct {
	timeout time.Duration
	admit   func(address string, g wire.Greeting) error
}

// Dial implements [nats.CustomDialer].
func (d dialer) Dial(network, address string) (net.Conn, error) {
	deadline := time.Now().Add(d.timeout)
	conn, err := (&net.Dialer{Deadline: deadline}).Dial(network, address)
	if err != nil {
		return nil, err
	}
	g, text, ok, err := wire.ReadGreeting(conn, deadline)
	if err == nil && ok { // nats.go reports what is wrong with any other
		err = d.admit(address, g)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &greeted{conn, text}, nil
}

// greeted is a connection of which the first bytes were read ahead.
type greeted struct {
	net.Conn
	ahead []byte
}

func (c *greeted) Read(p []byte) (int, error) {
	if len(c.ahead) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.ahead)
	c.ahead = c.ahead[n:]
	return n, nil
}
