// Package proxy puts faults between clients and a server: answers that come
// late, that never come, or that are lost after the server did what it was
// asked. It knows nothing of the protocol but that it runs over TCP.
package proxy

import (
	"context"
	"net"
	"sync"
	"time"
)

// Action is what becomes of a chunk that a client sent.
type Action int

const (
	// Forward sends it to the server.
	Forward Action = iota
	// CutBefore closes the connection without sending it: it was not done.
	CutBefore
	// CutAfter sends it, waits for the first bytes that the server answers,
	// and closes the connection in place of passing them on: it was done, but
	// the client cannot know. Nothing that the client sends after it is sent.
	CutAfter
	// Drop forgets it. The connection goes on, so the client waits for an answer
	// that never comes.
	Drop
)

// Proxy forwards connections to one server. Its methods may be called
// concurrently, and all but Close from the function of OnRequest.
type Proxy struct {
	listener net.Listener
	running  sync.WaitGroup

	mu        sync.Mutex
	target    string
	links     map[*link]struct{} // the present connections
	closed    bool
	refusing  bool
	hanging   bool
	delay     time.Duration
	onRequest func([]byte) Action
	changed   chan struct{} // closed when hanging or delay changes
}

// Start runs a proxy on a free port of 127.0.0.1 that forwards to the host:port
// target. The target need not be there yet: what it refuses, the proxy closes.
func Start(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, listener: l, links: map[*link]struct{}{}, changed: make(chan struct{})}
	p.running.Go(p.accept)
	return p, nil
}

// Addr is the host:port for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // it is closed
		}
		p.add(client.(*net.TCPConn))
	}
}

// add forwards a new connection unless none are wanted.
func (p *Proxy) add(client *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refusing {
		client.Close()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{proxy: p, client: client, ctx: ctx, cancel: cancel, answers: make(chan chunk, 64)}
	p.links[l] = struct{}{}
	p.running.Go(l.run)
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// Delay makes each chunk that the server answers arrive d later than it would,
// in order. It counts at once, also for chunks that are on their way; 0 is none.
func (p *Proxy) Delay(d time.Duration) {
	p.change(func() { p.delay = d })
}

// Hang holds everything that clients and server send and closes nothing, as if
// the network were gone; what is being sent at this moment may still pass.
// Hang(false) forwards what was held.
func (p *Proxy) Hang(on bool) {
	p.change(func() { p.hanging = on })
}

func (p *Proxy) change(set func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	set()
	close(p.changed)
	p.changed = make(chan struct{})
}

// state is what a chunk has to wait for, and a channel that is closed when it
// changes.
func (p *Proxy) state() (hanging bool, delay time.Duration, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hanging, p.delay, p.changed
}

// OnRequest has f decide on each chunk that is read from a client from now on;
// nil forwards all. f may keep no part of the chunk. It is called at once, also
// while Hang or Delay holds what is forwarded, and concurrently for several
// connections. TCP may cut requests into chunks anywhere; small ones whose
// client waits for each answer come whole.
func (p *Proxy) OnRequest(f func(data []byte) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onRequest = f
}

func (p *Proxy) decide(data []byte) Action {
	p.mu.Lock()
	f := p.onRequest
	p.mu.Unlock()
	if f == nil {
		return Forward
	}
	return f(data)
}

// Cut closes all present connections, also while Hang holds them. It may miss
// one through which nothing has passed yet.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
}

// cut is called with the lock held.
func (p *Proxy) cut() {
	for l := range p.links {
		l.close()
	}
}

// Lead closes all present connections, and forwards new ones to the host:port
// target.
func (p *Proxy) Lead(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
	p.cut()
}

// Refuse closes all present connections, and every new one at once, until
// Refuse(false).
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = on
	if on {
		p.cut()
	}
}

// Close closes the listener and all connections, and waits until everything
// that served them has ended. Closing again does nothing.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.listener.Close()
	p.cut()
	p.mu.Unlock()
	p.running.Wait()
}
