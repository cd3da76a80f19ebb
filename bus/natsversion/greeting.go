package natsversion

import (
	"bytes"
	"encoding/json"
	"net"
	"time"
)

// greetingLimit bounds a greeting, in bytes. It lists every server of the cluster.
const greetingLimit = 1 << 20

// greeting is what a server says of itself (INFO).
type greeting struct {
	ID      string `json:"server_id"`
	Name    string `json:"server_name"`
	Version string `json:"version"`
	Cluster string `json:"cluster"` // empty: it is in none
	TLS     bool   `json:"tls_required"`
}

// dialer is a [nats.CustomDialer] that reads the greeting before the connection is
// used. Where admit returns an error, there is no connection.
type dialer struct {
	timeout time.Duration
	admit   func(address string, g greeting) error
}

// Dial implements [nats.CustomDialer].
func (d dialer) Dial(network, address string) (net.Conn, error) {
	deadline := time.Now().Add(d.timeout)
	conn, err := (&net.Dialer{Deadline: deadline}).Dial(network, address)
	if err != nil {
		return nil, err
	}
	text, err := firstLine(conn, deadline)
	if err == nil {
		if g, ok := parseGreeting(text); ok { // nats.go reports what is wrong with any other
			err = d.admit(address, g)
		}
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &greeted{conn, text}, nil
}

// firstLine reads up to a line's end, and what came with it.
func firstLine(conn net.Conn, deadline time.Time) (text []byte, err error) {
	if err := conn.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	buf := make([]byte, 4096)
	for len(text) < greetingLimit && bytes.IndexByte(text, '\n') < 0 {
		n, err := conn.Read(buf)
		text = append(text, buf[:n]...)
		if err != nil {
			return nil, err
		}
	}
	return text, conn.SetReadDeadline(time.Time{})
}

// parseGreeting reads the INFO in a server's first line.
func parseGreeting(text []byte) (g greeting, ok bool) {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	word, body, _ := bytes.Cut(line, []byte(" "))
	return g, bytes.EqualFold(word, []byte("INFO")) && json.Unmarshal(body, &g) == nil
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
