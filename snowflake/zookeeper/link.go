package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	defaultPort = "2181"
	dialTimeout = time.Second
)

// parseHosts reads host[:port],host[:port].
func parseHosts(list string) ([]string, error) {
	var hosts []string
	for _, text := range strings.Split(list, ",") {
		text = strings.TrimSpace(text)
		if strings.Contains(text, "/") {
			return nil, fmt.Errorf("%q: give host:port,host:port, without a path", text)
		}
		host, port, err := net.SplitHostPort(text)
		if err != nil { // it has no port, or is no address, which is found below
			host, port = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), defaultPort
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, fmt.Errorf("%q: the port is not a number from 1 to 65535", text)
		}
		if host == "" || strings.ContainsAny(host, " \t@=?") || strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return nil, fmt.Errorf("%q: want host:port,host:port", text)
		}
		hosts = append(hosts, net.JoinHostPort(host, port))
	}
	return hosts, nil
}

// link is the way to ZooKeeper, for one request at a time. The library's client has no contexts,
// and connects again by itself, to any server. Here a client has one connection and one session:
// when the connection breaks, the client ends, and the next request begins with another one. So
// what a client has found out about its server stays true.
type link struct {
	hosts   []string
	timeout time.Duration // of a session
	log     *slog.Logger

	busy chan struct{} // holds a value while a request is under way, until it has really ended

	closing sync.WaitGroup // clients that end; added to under mu while not closed

	mu     sync.Mutex
	client *client // nil: none yet, or it has ended
	next   int     // the host that is tried next
	closed bool
}

// client is one connection to a server.
type client struct {
	conn   *zk.Conn
	raw    net.Conn
	events <-chan zk.Event // closed when the library's goroutines have ended
	up     chan struct{}   // closed when there is a session
	gone   chan struct{}   // closed when the connection has broken or was closed

	// Guarded by the link's busy.
	admitted bool // it leads to the ZooKeeper that was claimed
	leased   bool // its session has the temporary node
}

func newLink(hosts []string, timeout time.Duration, log *slog.Logger) *link {
	return &link{hosts: hosts, next: rand.IntN(len(hosts)), timeout: timeout, log: log, busy: make(chan struct{}, 1)}
}

// session returns a client with a session. If there is none, it tries each host once.
func (l *link) session(ctx context.Context) (*client, error) {
	l.mu.Lock()
	c := l.client
	l.mu.Unlock()
	if c != nil {
		return c, ctx.Err()
	}
	var why error // the first one
	for range l.hosts {
		c, err := l.connect(ctx)
		if err == nil {
			return c, nil
		}
		if why = cmp.Or(why, err); ctx.Err() != nil || errors.Is(err, zk.ErrClosing) {
			break
		}
	}
	return nil, fmt.Errorf("ZooKeeper is not connected (%s): %w", strings.Join(l.hosts, ","), why)
}

// connect makes a client of the next host. The library would resolve the names of all hosts, and
// fail if one is not known; and it would wait without end for a server that hangs while it greets.
func (l *link) connect(ctx context.Context) (*client, error) {
	l.mu.Lock()
	host := l.hosts[l.next%len(l.hosts)]
	l.next++
	l.mu.Unlock()
	raw, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	c := &client{raw: raw, up: make(chan struct{}), gone: make(chan struct{})}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		raw.Close()
		return nil, zk.ErrClosing
	}
	first := make(chan net.Conn, 1)
	first <- raw
	c.conn, c.events, err = zk.Connect([]string{raw.RemoteAddr().String()}, l.timeout, // returns at once
		zk.WithDialer(func(string, string, time.Duration) (net.Conn, error) {
			select {
			case conn := <-first:
				return conn, nil
			default:
				return nil, zk.ErrConnectionClosed
			}
		}),
		zk.WithEventCallback(c.event),
		zk.WithLogInfo(false),
		zk.WithLogger(slog.NewLogLogger(l.log.With("from", "ZooKeeper's client").Handler(), slog.LevelDebug)),
	)
	if err != nil {
		l.mu.Unlock()
		raw.Close()
		return nil, err
	}
	l.client = c
	l.closing.Go(func() { l.follow(c) })
	l.mu.Unlock()
	select {
	case <-c.up:
		return c, ctx.Err()
	case <-c.gone:
		return nil, zk.ErrConnectionClosed
	case <-time.After(l.timeout / 3):
		err = fmt.Errorf("%s does not greet", host)
	case <-ctx.Done():
		err = ctx.Err()
	}
	l.drop(c)
	return nil, err
}

// event follows the state of the session. It must not block. The client has one session, which is
// lost once.
func (c *client) event(e zk.Event) {
	switch e.State {
	case zk.StateHasSession:
		close(c.up)
	case zk.StateDisconnected:
		select {
		case <-c.gone:
		default:
			close(c.gone)
		}
	}
}

// follow ends a client when its connection has broken. It waits for the library's goroutines: up to
// 1 s.
func (l *link) follow(c *client) {
	up := false
	select {
	case <-c.up:
		up = true
		l.log.Info("connected to ZooKeeper", "server", c.raw.RemoteAddr())
		<-c.gone
	case <-c.gone:
	}
	l.mu.Lock()
	if l.client == c {
		l.client = nil
	}
	up = up && !l.closed
	l.mu.Unlock()
	if up {
		l.log.Warn("the connection to ZooKeeper is lost")
	}
	c.conn.Close() // what still waits for it returns an error
	for range c.events {
	}
}

// drop ends a client, and with it the request that waits for it. The next request begins with
// another one.
func (l *link) drop(c *client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client == c {
		l.client = nil
	}
	c.raw.Close()
}

// local is the IP address by which this machine reaches ZooKeeper.
func (c *client) local() string {
	host, _, _ := net.SplitHostPort(c.raw.LocalAddr().String())
	return host
}

// ask runs f when there is a session and no other request is under way, and returns
// when f or the context has ended. A request of f may still be done after that; f must
// look at its context before it begins another.
func ask[T any](ctx context.Context, l *link, f func(context.Context, *client) (T, error)) (T, error) {
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
		answer, failed = f(ctx, c)
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

// close ends the session, and with it the temporary node. It waits for the request that is under
// way, which ends with its client, and for the library's goroutines.
func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	c := l.client
	l.client = nil
	l.mu.Unlock()
	if c != nil {
		c.conn.Close()
		c.raw.Close()
	}
	l.closing.Wait()
	l.busy <- struct{}{}
	<-l.busy
}
