package embedded

import (
	"net"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
)

// provider is the nats.InProcessConnProvider of a Server.
type provider struct{ ns *server.Server }

func (p provider) InProcessConn() (net.Conn, error) {
	pipe, err := p.ns.InProcessConn()
	if err != nil {
		return nil, err
	}
	return &greetingConn{Conn: pipe}, nil
}

// greetingConn is the client's end of an in-process connection that can be
// refused without a deadlock.
//
// nats-server uses a net.Pipe, which holds no bytes: a write lasts until the
// other end has read it. nats.go greets with two writes, CONNECT and PING, and
// reads only then. A server that refuses CONNECT no longer reads but writes
// the reason; with both ends writing, the connection hangs until the server's
// write deadline of ten seconds, and the reason is lost.
//
// So the greeting is held until nats.go reads, and is then written while it
// reads. Every later write goes straight through. (Where a client insists on
// TLS in memory the greeting is TLS's own, and a refusal still takes long.)
type greetingConn struct {
	net.Conn

	mu       sync.Mutex
	greeting []byte
	sent     chan struct{} // made when the greeting goes out, closed when it is through
}

func (c *greetingConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if c.sent == nil {
		c.greeting = append(c.greeting, p...)
		c.mu.Unlock()
		return len(p), nil
	}
	c.mu.Unlock()
	<-c.sent
	return c.Conn.Write(p)
}

func (c *greetingConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	if c.sent == nil && len(c.greeting) > 0 {
		c.sent = make(chan struct{})
		go c.sendGreeting()
	}
	c.mu.Unlock()
	return c.Conn.Read(p)
}

// Close ends the connection, and waits for the goroutine that sends the greeting.
func (c *greetingConn) Close() error {
	err := c.Conn.Close()
	c.mu.Lock()
	sent := c.sent
	c.mu.Unlock()
	if sent != nil {
		<-sent
	}
	return err
}

// sendGreeting ends at the latest when either end closes the pipe. It drops
// its error because a broken pipe fails the next read too.
func (c *greetingConn) sendGreeting() {
	defer close(c.sent)
	_, _ = c.Conn.Write(c.greeting)
}
