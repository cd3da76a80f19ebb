package generator

import (
	"context"
	"maps"
	"sync"
	"time"
)

// checksEvery is the pause between two looks of a check.
const checksEvery = 10 * time.Second

// checks look around the generator. They ask others, so they have a goroutine, run, and keep what they found. The other
// methods are safe for concurrent use.
type checks struct {
	looks map[string]func(context.Context) error // Config.Checks, and keysLost
	found sync.Map                               // the errors that the last looks found, by the kind
}

func newChecks(cfg *Config, keys peerKeys) *checks {
	c := &checks{looks: make(map[string]func(context.Context) error)}
	maps.Copy(c.looks, cfg.Checks)
	c.looks[keysLost] = func(ctx context.Context) error { return keys.look(ctx, c.err(keysLost)) }
	return c
}

// run looks until the context is done.
func (c *checks) run(ctx context.Context) {
	ticker := time.NewTicker(checksEvery)
	defer ticker.Stop()
	for {
		for kind := range c.looks {
			c.look(ctx, kind)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// look looks now, and keeps what it finds.
func (c *checks) look(ctx context.Context, kind string) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	c.found.Store(kind, c.looks[kind](ctx))
}

// err is what the last look of a kind found.
func (c *checks) err(kind string) error {
	found, _ := c.found.Load(kind)
	err, _ := found.(error)
	return err
}

// conditions are those that the checks find.
func (c *checks) conditions() (list []*condition) {
	for kind := range c.looks {
		list = append(list, &condition{kind: kind, why: func(time.Time) error { return c.err(kind) }})
	}
	return list
}
