package generator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
)

const (
	// startTimeout is how long a start waits for the store and a worker. Then the generator
	// serves without them, and refuses requests with the reason.
	startTimeout = 2 * time.Second
	// lookEvery is how often a generator looks whether it should leave or enter a queue group.
	lookEvery = 200 * time.Millisecond
)

// serve is the main loop of a generator. It begins to answer requests when the store and a worker
// are there, or after startTimeout. It returns when the context is done, or with the error
// that ends the generator.
func (g *Generator) serve(ctx context.Context, r *run, status <-chan nats.Status) error {
	looks := time.NewTicker(lookEvery)
	defer looks.Stop()
	late := time.After(startTimeout)
	starting := true
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-g.phase.failed:
			return err
		case s := <-status:
			if s == nats.CLOSED {
				return errors.Join(errors.New("the connection to NATS is closed for good"), g.cfg.Conn.LastError())
			}
			signal(g.heartbeats.changed)
		case <-g.group.look:
		case now := <-looks.C:
			g.alerts.look(now)
			if n := g.cfg.Numbers; n != nil && errors.Is(n.Err(), allocator.ErrRefused) {
				return n.Err() // it is another installation's
			}
		case <-late:
			starting = false
		}
		g.spreading.step(time.Now())
		g.alloc.Share(1 + g.group.count(time.Now(), g.segments.offers))
		switch {
		case g.phase.serving.Load():
			if err := g.stepAside(); err != nil {
				g.log.Error("a queue group cannot be left or entered; trying again", "error", err)
			}
		case !starting || g.phase.prepared.Load() && g.snowflakes.healthy() == nil:
			if err := g.begin(r); err != nil {
				return err
			}
		}
	}
}

// begin enters the queue groups. From then on the generator answers requests.
func (g *Generator) begin(r *run) (err error) {
	if !g.phase.prepared.Load() {
		g.log.Warn("the store is not available yet; until it is, requests are refused with store_unavailable")
	}
	if why := g.snowflakes.healthy(); why != nil {
		g.log.Warn("snowflakes are not available yet; until they are, requests are refused with the reason",
			"reason", why)
	}
	if err := mayAnswer(g.cfg.Conn); err != nil {
		return err
	}
	if r.leaf, err = g.addLeafService(); err != nil {
		return err
	}
	if err := g.stepAside(); err != nil {
		return err
	}
	if err := g.link.flush(); err != nil {
		return fmt.Errorf("NATS did not confirm the subscriptions: %w", err)
	}
	if why := refusedSubscription(g.cfg.Conn, g.cfg.Conn.LastError()); why != nil { // nats.go reports it a little later
		return why
	}
	g.phase.serving.Store(true)
	close(g.phase.begun)
	g.heartbeats.now()
	if g.cfg.Ready != nil {
		g.cfg.Ready()
	}
	return nil
}

// stepAside leaves or enters the queue groups of both services, see [service.stepAside].
func (g *Generator) stepAside() error {
	now := time.Now()
	if g.group.away.mustReopen() {
		if err := errors.Join(g.segments.reopen(), g.snowflakes.reopen()); err != nil {
			return err
		}
		defer g.group.away.reopened()
	}
	return errors.Join(g.segments.stepAside(now), g.snowflakes.stepAside(now))
}
