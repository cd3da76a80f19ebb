package generator

import (
	"sync"
	"sync/atomic"

	"github.com/leafbus/leafbus/bus"
)

// counts is what a generator has answered. Its methods are safe for concurrent
// use; the zero value is ready.
type counts struct {
	requests atomic.Int64 // answered with IDs
	ids      atomic.Int64

	mu     sync.Mutex
	errors map[bus.Reason]int64
}

func (c *counts) served(ids int64) {
	c.requests.Add(1)
	c.ids.Add(ids)
}

func (c *counts) refused(reason bus.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.errors == nil {
		c.errors = make(map[bus.Reason]int64)
	}
	c.errors[reason]++
}

// refusals returns a copy of the number of errors by reason.
func (c *counts) refusals() map[bus.Reason]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := make(map[bus.Reason]int64, len(c.errors))
	for reason, n := range c.errors {
		found[reason] = n
	}
	return found
}
