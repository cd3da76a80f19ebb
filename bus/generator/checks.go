package generator

import (
	"context"
	"sync"
	"time"
)

// checksEvery is the pause between two rounds of checks, and checksAgain that while one finds something, because
// operators wait for its end.
const checksEvery, checksAgain = time.Minute, 10 * time.Second

// checks runs Config.Checks, which ask others, and keeps what they found. Its methods are safe for concurrent use.
type checks struct {
	cfg *Config

	mu    sync.Mutex
	found map[string]error
}

// run checks until the context is done.
func (c *checks) run(ctx context.Context) {
	for {
		found, pause := make(map[string]error), checksEvery
		for kind, check := range c.cfg.Checks {
			attempt, cancel := context.WithTimeout(ctx, stepTimeout)
			found[kind] = check(attempt)
			cancel()
			if found[kind] != nil {
				pause = checksAgain
			}
		}
		c.mu.Lock()
		c.found = found
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// err is what the last check of a kind found.
func (c *checks) err(kind string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found[kind]
}

// conditions are those that the checks find.
func (c *checks) conditions() (list []*condition) {
	for kind := range c.cfg.Checks {
		list = append(list, &condition{kind: kind, why: func(time.Time) error { return c.err(kind) }})
	}
	return list
}
