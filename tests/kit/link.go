package kit

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Action is what a [Link] does with a chunk that a client sent.
type Action int

const (
	// Forward sends it to the server.
	Forward Action = iota
	// CutBefore closes the connection without sending it: it was not done.
	CutBefore
	// CutAfter sends it, and closes the connection when the first bytes of the answer come, instead of passing
	// them on: it was done, but the client cannot know.
	CutAfter
	// Drop forgets it. The connection stays open, so the client waits for an answer that never comes.
	Drop
)

// Link forwards TCP connections to a server, and can be slow, silent or cut. Its methods may be called
// concurrently, and all but Close from the function of OnRequest.
type Link struct {
	listener net.Listener
	running  sync.WaitGroup

	mu              sync.Mutex
	target          string
	conns           map[*linkConn]struct{} // the present ones
	closed          bool
	refusing        bool
	hangingRequests bool
	hangingAnswers  bool
	delay           time.Duration
	onRequest       func([]byte) Action
	changed         chan struct{} // closed when what hangs or delay changes
}

// NewLink runs a link on a free port of 127.0.0.1 to the host:port target, until the test ends. The target need
// not be there yet.
func NewLink(tb testing.TB, target string) *Link {
	tb.Helper()
	l, err := StartLink(target)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(l.Close)
	return l
}

// StartLink is [NewLink] until Close.
func StartLink(target string) (*Link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Link{target: target, listener: listener, conns: map[*linkConn]struct{}{}, changed: make(chan struct{})}
	l.running.Go(l.accept)
	return l, nil
}

// Addr is the host:port for clients.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Target is where the link leads now.
func (l *Link) Target() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.target
}

func (l *Link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return // it is closed
		}
		l.add(client.(*net.TCPConn))
	}
}

// add forwards a new connection unless none are wanted.
func (l *Link) add(client *net.TCPConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.refusing {
		client.Close()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &linkConn{link: l, client: client, ctx: ctx, cancel: cancel, answers: make(chan chunk, 64)}
	l.conns[c] = struct{}{}
	l.running.Go(c.run)
}

// Delay makes each chunk that the server answers arrive d later, in order. It counts at once; 0 is none.
func (l *Link) Delay(d time.Duration) { l.change(func() { l.delay = d }) }

// Hang holds everything that both sides send and closes nothing, as if the network were gone. What is being
// sent at this moment may still pass. Hang(false) forwards what was held.
func (l *Link) Hang(on bool) { l.change(func() { l.hangingRequests, l.hangingAnswers = on, on }) }

// HangRequests is [Link.Hang] for what clients send. What the server sends still arrives.
func (l *Link) HangRequests(on bool) { l.change(func() { l.hangingRequests = on }) }

// HangAnswers is [Link.Hang] for what the server sends. What clients send still arrives.
func (l *Link) HangAnswers(on bool) { l.change(func() { l.hangingAnswers = on }) }

func (l *Link) change(set func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	set()
	close(l.changed)
	l.changed = make(chan struct{})
}

// OnRequest makes f decide on each chunk that is read from a client from now on; nil forwards all. f may change
// the chunk, but keep no part of it, and is called concurrently for several connections. TCP may cut requests into
// chunks anywhere; small ones whose client waits for each answer come whole.
func (l *Link) OnRequest(f func(data []byte) Action) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onRequest = f
}

func (l *Link) decide(data []byte) Action {
	l.mu.Lock()
	f := l.onRequest
	l.mu.Unlock()
	if f == nil {
		return Forward
	}
	return f(data)
}

// Cut closes all present connections, also those that hang.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cutLocked()
}

func (l *Link) cutLocked() {
	for c := range l.conns {
		c.close()
	}
}

// Lead closes all present connections, and forwards new ones to the host:port target.
func (l *Link) Lead(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
	l.cutLocked()
}

// Refuse closes all present connections, and every new one at once, until Refuse(false).
func (l *Link) Refuse(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusing = on
	if on {
		l.cutLocked()
	}
}

// Close closes everything, and waits until all that served it has ended. It may be called again.
func (l *Link) Close() {
	l.mu.Lock()
	l.closed = true
	l.listener.Close()
	l.cutLocked()
	l.mu.Unlock()
	l.running.Wait()
}

// linkConn is a client's connection, and the one to the server that belongs to it.
type linkConn struct {
	link    *Link
	client  *net.TCPConn
	ctx     context.Context // ends with the connection
	cancel  context.CancelFunc
	answers chan chunk // those read and not yet passed on

	// losing is set before the request is sent whose answer is to be lost.
	losing atomic.Bool

	mu     sync.Mutex
	server *net.TCPConn // nil until it is there
}

// chunk is what one read of an answer returned.
type chunk struct {
	data    []byte
	end     error // what ended the reading, io.EOF where the server was done
	lost    bool
	arrived time.Time
}

func (c *linkConn) run() {
	defer func() {
		c.close()
		c.link.mu.Lock()
		delete(c.link.conns, c)
		c.link.mu.Unlock()
	}()
	server, err := c.dial()
	if err != nil {
		_ = c.await(time.Time{}, false) && c.await(time.Time{}, true) // a link that hangs closes nothing
		return
	}
	var ways sync.WaitGroup
	ways.Go(func() { c.forwardRequests(server) })
	ways.Go(func() { c.readAnswers(server) })
	ways.Go(c.forwardAnswers)
	ways.Wait()
}

func (c *linkConn) dial() (*net.TCPConn, error) {
	conn, err := new(net.Dialer).DialContext(c.ctx, "tcp", c.link.Target())
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		conn.Close()
		return nil, c.ctx.Err()
	}
	c.server = conn.(*net.TCPConn)
	return c.server, nil
}

// close ends the connection at once, and drops what it holds.
func (c *linkConn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel()
	c.client.Close()
	if c.server != nil {
		c.server.Close()
	}
}

// await waits until what arrived at a time may go on. It returns false if the connection ends before.
func (c *linkConn) await(arrived time.Time, isAnswer bool) bool {
	for {
		c.link.mu.Lock()
		held, delay, changed := c.link.hangingRequests, time.Duration(0), c.link.changed
		if isAnswer {
			held, delay = c.link.hangingAnswers, c.link.delay
		}
		c.link.mu.Unlock()
		var due <-chan time.Time
		if !held {
			left := time.Until(arrived.Add(delay))
			if left <= 0 {
				return c.ctx.Err() == nil
			}
			due = time.After(left)
		}
		select {
		case <-c.ctx.Done():
			return false
		case <-changed:
		case <-due:
		}
	}
}

// forwardRequests reads no further while a chunk waits, so it holds up the client as a network does.
func (c *linkConn) forwardRequests(server *net.TCPConn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := c.client.Read(buf)
		if n > 0 && !c.forwardRequest(server, buf[:n]) {
			return
		}
		if err != nil {
			if c.await(time.Time{}, false) {
				c.finish(server, err)
			}
			return
		}
	}
}

// forwardRequest returns false if it was the last one.
func (c *linkConn) forwardRequest(server *net.TCPConn, data []byte) bool {
	action := c.link.decide(data)
	if !c.await(time.Time{}, false) {
		return false
	}
	switch action {
	case Drop:
		return true
	case CutBefore:
		c.close()
		return false
	case CutAfter:
		c.losing.Store(true)
	}
	if _, err := server.Write(data); err != nil {
		c.close()
		return false
	}
	return action == Forward
}

// readAnswers notes when chunks arrive, also while earlier ones wait. Otherwise their delays would add up.
func (c *linkConn) readAnswers(server *net.TCPConn) {
	defer close(c.answers)
	for {
		buf := make([]byte, 64<<10)
		n, err := server.Read(buf)
		select {
		case c.answers <- chunk{data: buf[:n], end: err, lost: c.losing.Load(), arrived: time.Now()}:
		case <-c.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

func (c *linkConn) forwardAnswers() {
	for answer := range c.answers {
		if !c.await(answer.arrived, true) {
			return
		}
		if answer.lost {
			c.close()
			return
		}
		if _, err := c.client.Write(answer.data); err != nil {
			c.close()
			return
		}
		if answer.end != nil {
			c.finish(c.client, answer.end)
		}
	}
}

// finish passes on that one side sends no more. The other may still send, unless the connection broke.
func (c *linkConn) finish(other *net.TCPConn, end error) {
	if !errors.Is(end, io.EOF) || other.CloseWrite() != nil {
		c.close()
	}
}
