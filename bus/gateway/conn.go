package gateway

import (
	"net"
	"sync"
	"time"
)

// lazyListener accepts connections that set a deadline only when a call needs it.
//
// With limits of time net/http sets nine deadlines a request, which is a tenth of its processor time. Most of
// them are replaced before a call waits: the request has already come, and the kernel takes the answer at once.
type lazyListener struct {
	net.Listener
	writeSlack time.Duration
}

// Accept implements [net.Listener].
func (l lazyListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newLazyConn(c, l.writeSlack), nil
}

// lazyConn is a connection that sets its deadlines when a call needs them. It is safe for concurrent use.
type lazyConn struct {
	net.Conn
	read, write deadline
}

// newLazyConn returns c with lazy deadlines. A deadline of writes may come earlier by writeSlack than it was
// set, so that requests in quick succession share one.
func newLazyConn(c net.Conn, writeSlack time.Duration) *lazyConn {
	return &lazyConn{Conn: c, read: deadline{set: c.SetReadDeadline},
		write: deadline{set: c.SetWriteDeadline, slack: writeSlack}}
}

// Read implements [net.Conn].
func (c *lazyConn) Read(p []byte) (int, error) {
	if err := c.read.begin(); err != nil {
		return 0, err
	}
	defer c.read.end()
	return c.Conn.Read(p)
}

// Write implements [net.Conn].
func (c *lazyConn) Write(p []byte) (int, error) {
	if err := c.write.begin(); err != nil {
		return 0, err
	}
	defer c.write.end()
	return c.Conn.Write(p)
}

// SetDeadline implements [net.Conn].
func (c *lazyConn) SetDeadline(t time.Time) error {
	if err := c.read.change(t); err != nil {
		return err
	}
	return c.write.change(t)
}

// SetReadDeadline implements [net.Conn].
func (c *lazyConn) SetReadDeadline(t time.Time) error { return c.read.change(t) }

// SetWriteDeadline implements [net.Conn].
func (c *lazyConn) SetWriteDeadline(t time.Time) error { return c.write.change(t) }

// deadline is that of the reads of a connection, or that of its writes.
type deadline struct {
	set   func(time.Time) error // of the connection
	slack time.Duration         // it may come earlier by this

	mu      sync.Mutex
	wanted  time.Time // zero: none
	inForce time.Time // as set last
	calls   int       // reads or writes under way
}

// change sets another deadline. A call that is under way must end by it, so then it is in force at once.
func (d *deadline) change(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = t
	if d.calls == 0 {
		return nil
	}
	return d.enforceLocked()
}

// begin puts the deadline in force for a call.
func (d *deadline) begin() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.enforceLocked(); err != nil {
		return err
	}
	d.calls++
	return nil
}

// end is for a call that began.
func (d *deadline) end() {
	d.mu.Lock()
	d.calls--
	d.mu.Unlock()
}

func (d *deadline) enforceLocked() error {
	if early := d.wanted.Sub(d.inForce); early >= 0 && early <= d.slack { // not if one of them is zero
		return nil
	}
	if err := d.set(d.wanted); err != nil {
		return err
	}
	d.inForce = d.wanted
	return nil
}
