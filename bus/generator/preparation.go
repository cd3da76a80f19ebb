package generator

import (
	"context"
	"errors"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/wire"
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
//	├── retry   membership.join, warnOfStreams, open, one after the other
//	├── retry   tags.ensureAll, while the allocator runs: it knows by its watch which tags there are
//	└── allocator.Run
type preparation struct {
	*base
	tags  *tagAdmin
	ready func() // called when all is prepared
}

// run prepares, and refills until the context is done.
func (p *preparation) run(ctx context.Context) {
	for _, step := range []func(context.Context) error{p.membership.join, p.warnOfStreams, p.open} {
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

// warnOfStreams logs each stream that keeps requests, or the answers to generators. The acknowledgement of a stream
// that keeps requests reaches the caller before the IDs do.
func (p *preparation) warnOfStreams(ctx context.Context) error {
	const requests = "the requests for IDs, so callers get its acknowledgement in place of IDs"
	for subject, what := range map[string]string{
		wire.SubjectSegment + ".>": requests, wire.SubjectSnowflake: requests,
		wire.SubjectInbox + ".>": "the keys of opaque tags, which are in the answers to generators",
	} {
		if name, err := p.cfg.JS.StreamNameBySubject(ctx, subject); err == nil { // else there is none, or it is not known
			p.cfg.Log.Error("a stream keeps "+what+": change its subjects", "stream", name, "subjects", subject)
		}
	}
	return nil
}

// open opens the store. From then on tags may be in memory.
func (p *preparation) open(ctx context.Context) error {
	err := p.cfg.Open(ctx)
	if err == nil {
		p.phase.opened.Store(true)
	}
	return err
}
