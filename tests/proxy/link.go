package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// link is a client's connection and the one to the server that belongs to it.
type link struct {
	proxy   *Proxy
	client  *net.TCPConn
	ctx     context.Context // ends with the link
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

func (l *link) run() {
	defer l.proxy.remove(l)
	defer l.close()
	server, err := l.dial()
	if err != nil {
		l.await(time.Time{}, false) // a proxy that hangs closes nothing
		return
	}
	var ways sync.WaitGroup
	ways.Go(func() { l.forwardRequests(server) })
	ways.Go(func() { l.readAnswers(server) })
	ways.Go(l.forwardAnswers)
	ways.Wait()
}

func (l *link) dial() (*net.TCPConn, error) {
	var dialer net.Dialer
	l.proxy.mu.Lock()
	target := l.proxy.target
	l.proxy.mu.Unlock()
	conn, err := dialer.DialContext(l.ctx, "tcp", target)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		conn.Close()
		return nil, l.ctx.Err()
	}
	l.server = conn.(*net.TCPConn)
	return l.server, nil
}

// close ends the link at once; what it holds is dropped.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	l.client.Close()
	if l.server != nil {
		l.server.Close()
	}
}

// await waits until what arrived at a time may go on. It returns false if the
// link ends before.
func (l *link) await(arrived time.Time, isAnswer bool) bool {
	for {
		hanging, delay, changed := l.proxy.state()
		if !isAnswer {
			delay = 0
		}
		var due <-chan time.Time
		if !hanging {
			left := time.Until(arrived.Add(delay))
			if left <= 0 {
				return l.ctx.Err() == nil
			}
			due = time.After(left)
		}
		select {
		case <-l.ctx.Done():
			return false
		case <-changed:
		case <-due:
		}
	}
}

// forwardRequests reads no further while a chunk waits, so that a client that
// sends much is held up as by a network.
func (l *link) forwardRequests(server *net.TCPConn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := l.client.Read(buf)
		if n > 0 && !l.forwardRequest(server, buf[:n]) {
			return
		}
		if err != nil {
			if l.await(time.Time{}, false) {
				l.finish(server, err)
			}
			return
		}
	}
}

// forwardRequest returns false if it was the last one.
func (l *link) forwardRequest(server *net.TCPConn, data []byte) bool {
	action := l.proxy.decide(data)
	if !l.await(time.Time{}, false) {
		return false
	}
	switch action {
	case Drop:
		return true
	case CutBefore:
		l.close()
		return false
	case CutAfter:
		l.losing.Store(true)
	}
	if _, err := server.Write(data); err != nil {
		l.close()
		return false
	}
	return action == Forward
}

// readAnswers takes down when chunks arrive, also while earlier ones wait, or
// their delays would add up.
func (l *link) readAnswers(server *net.TCPConn) {
	defer close(l.answers)
	for {
		buf := make([]byte, 64<<10)
		n, err := server.Read(buf)
		c := chunk{data: buf[:n], end: err, lost: l.losing.Load(), arrived: time.Now()}
		select {
		case l.answers <- c:
		case <-l.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

func (l *link) forwardAnswers() {
	for c := range l.answers {
		if !l.await(c.arrived, true) {
			return
		}
		if c.lost {
			l.close()
			return
		}
		if _, err := l.client.Write(c.data); err != nil {
			l.close()
			return
		}
		if c.end != nil {
			l.finish(l.client, c.end)
		}
	}
}

// finish passes on that one side sends no more. The other may still have
// something to say, unless the connection broke.
func (l *link) finish(other *net.TCPConn, end error) {
	if !errors.Is(end, io.EOF) || other.CloseWrite() != nil {
		l.close()
	}
}
