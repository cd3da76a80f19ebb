package generator

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
)

// chunks is how many subscriptions divide a window among them. NATS gives each as much as it gives a generator without
// a limit.
const chunks = 2

// credit is a member of a queue group to which NATS passes on a bounded number of requests: about as many as its window
// wait in it. Each of its subscriptions ends in the NATS server after a number of requests. When half of the window was
// read, it subscribes again. So the server itself keeps the bound, however slow this process is.
//
// Requests can be lost, and their callers time out. nats.go subscribes and says the number in two steps. What comes
// between them beyond the number is dropped, and what was not read yet at a reconnect counts twice.
//
// Its methods are safe for concurrent use.
type credit struct {
	conn    *nats.Conn
	subject string
	window  *atomic.Int64
	handle  func(*nats.Msg)

	left atomic.Int64 // requests that NATS may pass on, or has, and that were not read yet

	mu     sync.Mutex
	closed bool
	subs   []*nats.Subscription
}

// grant subscribes until the window is full.
func (c *credit) grant() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	window := c.window.Load()
	n := max(window/chunks, 1)
	for c.left.Load()+n <= window {
		sub, err := c.conn.QueueSubscribe(c.subject, bus.QueueGroup, c.receive)
		if err != nil {
			return err
		}
		c.subs = append(c.subs, sub)
		if err := sub.AutoUnsubscribe(int(n)); err != nil {
			return err
		}
		c.left.Add(n)
	}
	c.subs = slices.DeleteFunc(c.subs, func(s *nats.Subscription) bool { return !s.IsValid() })
	return nil
}

func (c *credit) receive(msg *nats.Msg) {
	if window := c.window.Load(); c.left.Add(-1) <= window-window/chunks {
		_ = c.grant() // the next look of the generator tries again, and logs
	}
	c.handle(msg)
}

// end makes it subscribe no more, and returns its subscriptions.
func (c *credit) end() []*nats.Subscription {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return c.subs
}

// close leaves the queue group. What was received is still answered.
func (c *credit) close() (err error) {
	for _, sub := range c.end() {
		err = errors.Join(err, sub.Drain())
	}
	return err
}
