package embedded

import (
	"net"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"
)

// provider is the nats.InProcessConnProvider of a Server.
type provider struct{ ns *server.Server }

func (p provider) InProcessConn() (net.Conn, error) {
	pipe, err := p.ns.InProcessConn()
	return &greetingConn{Conn: pipe, sent: make(chan struct{})}, err
}

// greetingConn is the client's end of an in-process connection that can be refused without a
// deadlock.
//
// nats-server uses a net.Pipe, which holds no bytes: a write lasts until the other end has read it.
// nats.go greets with two writes, CONNECT and PING, and reads only then. A server that refuses
// CONNECT no longer reads but writes the reason; with both ends writing, the connection hangs until
// the server's write deadline of ten seconds, and the reason is lost. So the greeting is held until
// nats.go reads, and is then written while it reads. Every later write goes straight through.
// (Where a client insists on TLS in memory the greeting is TLS's own, and a refusal still takes
// long.)
type greetingConn struct {
	net.Conn
	greeting []byte        // of the goroutine that greets
	sending  atomic.Bool   // the greeting goes out
	sent     chan struct{} // closed when it is through
}

func (c *greetingConn) Write(p []byte) (int, error) {
	if !c.sending.Load() {
		c.greeting = append(c.greeting, p...)
		return len(p), nil
	}
	<-c.sent
	return c.Conn.Write(p)
}

func (c *greetingConn) Read(p []byte) (int, error) {
	if !c.sending.Load() && len(c.greeting) > 0 && c.sending.CompareAndSwap(false, true) {
		go func() { // until either end closes the pipe; a broken one fails the next read too
			defer close(c.sent)
			_, _ = c.Conn.Write(c.greeting)
		}()
	}
	return c.Conn.Read(p)
}

// Close ends the connection, and waits for the goroutine that sends the greeting.
func (c *greetingConn) Close() error {
	err := c.Conn.Close()
	if c.sending.Load() {
		<-c.sent
	}
	return err
}
