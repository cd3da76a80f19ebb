package generator

import (
	"context"
	"errors"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

const (
	// stepTimeout bounds one attempt at one step of the preparation. JetStream
	// may leave a request without an answer while it elects a leader.
	stepTimeout  = 5 * time.Second
	prepareAgain = time.Second
	// repeatLog is how often the log repeats why the generator cannot serve.
	repeatLog = time.Minute
)

// preparation makes the generator ready for requests for IDs of tags, and runs the allocator:
//
//	run
//	├── retry   membership.join, open, one after the other
//	├── retry   tags.ensureAll, while the allocator runs: it knows by its watch which tags there are
//	└── allocator.Run
type preparation struct {
	*base
	tags  *tagAdmin
	ready func() // called when all is prepared
}

// run prepares, and refills until the context is done.
func (p *preparation) run(ctx context.Context) {
	for _, step := range []func(context.Context) error{p.membership.join, p.open} {
		if err := p.retry(ctx, step); err != nil {
			p.phase.fail(err)
			<-ctx.Done()
			break
		}
	}
	tags := background(func(context.Context) {
		if ctx.Err() != nil {
			return
		}
		if err := p.retry(ctx, p.tags.ensureAll); err != nil {
			p.phase.fail(err)
			return
		}
		p.phase.prepared.Store(true)
		p.ready()
	})
	p.alloc.Run(ctx)
	tags.stop()
}

// retry tries a step until it succeeds or is refused, or the context ends.
func (p *preparation) retry(ctx context.Context, step func(context.Context) error) error {
	logged, at := "", time.Time{}
	for {
		attempt, cancel := context.WithTimeout(ctx, stepTimeout)
		err := step(attempt)
		cancel()
		if err == nil || errors.Is(err, allocator.ErrRefused) || ctx.Err() != nil {
			return err
		}
		p.phase.unready.Store(&err)
		if logged != err.Error() || time.Since(at) > repeatLog {
			logged, at = err.Error(), time.Now()
			p.cfg.Log.Warn("segments cannot be served yet; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(prepareAgain):
		}
	}
}

// open opens the store. From then on tags may be in memory.
func (p *preparation) open(ctx context.Context) error {
	err := p.cfg.Open(ctx)
	if err == nil {
		p.phase.opened.Store(true)
	}
	return err
}
