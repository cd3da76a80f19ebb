package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// link is the way to ZooKeeper. Its client reconnects by itself, with a new
// session where the old one is over, and has no contexts: a request waits until
// there is an answer or the connection breaks. So the link sends no request while
// there is no session, and only one at a time.
type link struct {
	hosts   []string
	servers hosts         // the same, in turn
	timeout time.Duration // of a session
	log     *slog.Logger

	busy chan struct{} // holds a value while a request is under way, until it has really ended
	conn *zk.Conn      // of the request that is under way; guarded by busy

	closing sync.WaitGroup // dropped clients; added to under mu while not closed

	mu        sync.Mutex
	client    *client // nil: none yet, or it was dropped
	connected bool    // as the log says
	closed    bool    // by us
	why       error   // why there is no session, as found first; nil: not known
	address   string  // by which this machine last reached a server
}

// client is a connection, and whether there is a session.
type client struct {
	*link
	conn   *zk.Conn
	events <-chan zk.Event // closed when the library's goroutines have ended

	// Guarded by the link's mu.
	over  bool          // it was closed
	up    chan struct{} // closed while there is a session
	isUp  bool
	since time.Time // of when it was last up, or began
	raw   *boundedConn
}

func newLink(hosts []string, timeout time.Duration, log *slog.Logger) *link {
	return &link{hosts: hosts, timeout: timeout, log: log, busy: make(chan struct{}, 1)}
}

// current returns the client. It makes one, which begins to connect, if there is none.
func (l *link) current() (*client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client != nil {
		return l.client, nil
	}
	if l.closed {
		return nil, zk.ErrClosing
	}
	c := &client{link: l, up: make(chan struct{}), since: time.Now()}
	var err error
	c.conn, c.events, err = zk.Connect(l.hosts, l.timeout, // returns at once; its callbacks wait for mu
		zk.WithHostProvider(&l.servers),
		zk.WithDialer(c.dial),
		zk.WithEventCallback(c.event),
		zk.WithLogInfo(false),
		zk.WithLogger(slog.NewLogLogger(l.log.With("from", "ZooKeeper's client").Handler(), slog.LevelDebug)),
	)
	if err == nil {
		l.client = c
	}
	return c, err
}

// drop ends a client, and with it the request that waits for it. The next request goes
// to a new client.
func (l *link) drop(c *client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client == c { // if not, another goroutine has dropped it already
		l.client = nil
		l.closing.Go(c.close)
	}
}

// close ends a client; its request returns an error. It waits for the client's
// goroutines: up to 3 s for the server, and 1 s for a connection that is being made. It
// closes the connection, because the library would go on reading from a server that
// answers only pings.
func (c *client) close() {
	c.conn.Close()
	c.mu.Lock()
	c.over = true // from here on it does not connect again
	if c.raw != nil {
		c.raw.Close()
	}
	c.mu.Unlock()
	for range c.events {
	}
}

// dial connects to a server with a bound on its greeting. The library would wait
// forever for a server that hangs while it greets, even after Close.
func (c *client) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over && err == nil {
		conn.Close()
		err = zk.ErrClosing
	}
	if err != nil {
		if c.why == nil { // keep the first host's
			c.why = err
		}
		return nil, err
	}
	if host, _, err := net.SplitHostPort(conn.LocalAddr().String()); err == nil {
		c.address = host
	}
	c.raw = &boundedConn{Conn: conn, most: c.timeout}
	return c.raw, nil
}

// boundedConn bounds each read until there is a session. From then on the library has
// its own bounds, which the server decides.
type boundedConn struct {
	net.Conn
	most    time.Duration
	greeted atomic.Bool
}

// SetReadDeadline sets the deadline t, or an earlier one.
func (c *boundedConn) SetReadDeadline(t time.Time) error {
	if c.greeted.Load() {
		return c.Conn.SetReadDeadline(t)
	}
	most := time.Now().Add(c.most)
	if t.IsZero() || t.After(most) {
		t = most
	}
	return c.Conn.SetReadDeadline(t)
}

// event follows the state of the session. It must not block.
func (c *client) event(e zk.Event) {
	if e.Type != zk.EventSession {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.State {
	case zk.StateHasSession:
		if c.isUp {
			return
		}
		c.isUp, c.why = true, nil
		close(c.up)
		c.raw.greeted.Store(true)
		if !c.connected {
			c.connected = true
			c.log.Info("connected to ZooKeeper", "server", e.Server)
		}
	case zk.StateDisconnected, zk.StateExpired:
		if !c.isUp {
			return
		}
		c.isUp, c.up, c.since = false, make(chan struct{}), time.Now()
		if !c.closed && c == c.client {
			c.connected = false
			c.log.Warn("the connection to ZooKeeper is lost")
		}
	}
}

// session waits for a session. If there was none for longer than a session lasts, by
// this machine's monotonic clock, it begins with a new client. Then the old session is
// over; and servers refuse a client that has seen more transactions than they have,
// which is for ever after a restore from a backup.
func (l *link) session(ctx context.Context) (*client, error) {
	for {
		c, err := l.current()
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		up, left := c.up, l.timeout-time.Since(c.since)
		if c.isUp {
			left = l.timeout
		}
		l.mu.Unlock()
		if left <= 0 {
			l.drop(c)
			continue
		}
		select {
		case <-up:
			return c, ctx.Err()
		case <-time.After(left):
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			return nil, fmt.Errorf("ZooKeeper is not connected (%s): %w", strings.Join(l.hosts, ","), cmp.Or(l.why, ctx.Err()))
		}
	}
}

// local is the IP address by which this machine reaches ZooKeeper.
func (l *link) local() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.address
}

// ask runs f when there is a session and no other request is under way, and returns
// when f or the context has ended. A request of f may still be done after that; f must
// look at its context before it begins another.
func ask[T any](ctx context.Context, l *link, f func(context.Context) (T, error)) (T, error) {
	var none T
	select {
	case l.busy <- struct{}{}:
	case <-ctx.Done():
		return none, errors.New("ZooKeeper has not answered the request before this one")
	}
	c, err := l.session(ctx)
	if err != nil {
		<-l.busy
		return none, err
	}
	l.conn = c.conn
	// The library waits for an answer as long as the server answers its pings.
	silence := time.AfterFunc(2*l.timeout, func() {
		l.log.Warn("ZooKeeper does not answer a request: connecting again")
		l.drop(c)
	})
	var answer T
	var failed error
	answered := make(chan struct{}) // until it is closed, only the goroutine uses these two
	go func() {
		defer func() { <-l.busy }()
		answer, failed = f(ctx)
		silence.Stop()
		close(answered)
	}()
	select {
	case <-answered:
		return answer, failed
	case <-ctx.Done():
		return none, fmt.Errorf("ZooKeeper does not answer (the request may still be done): %w", ctx.Err())
	}
}

// close ends the session, and with it the temporary node. It waits for all requests,
// which end with their client, and for the dropped clients.
func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	c := l.client
	l.client = nil
	l.mu.Unlock()
	if c != nil {
		c.close()
	}
	l.closing.Wait()
	l.busy <- struct{}{}
	<-l.busy
}
