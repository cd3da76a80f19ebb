package generator

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
)

// learnPatience is how long the store may take when no request waits: it may have a million tags,
// and be far away.
const learnPatience = 30 * time.Second

// learner looks whether this generator is away, and learns what happened meanwhile:
//
//	run
//	├── away.tick, away.next   decide
//	├── records, worker        each in a goroutine of its own; away.learned gets the result
//	└── link.reconnect
//
// It has no lock: run owns what it remembers.
type learner struct {
	*base
	flakes *flakes
}

// run looks until the context is done. It waits for nothing.
func (l *learner) run(ctx context.Context, connected <-chan nats.Status) {
	a := l.group.away
	looks := time.NewTicker(lookEvery)
	defer looks.Stop()
	was, round, parted := stateHere, 0, false
	begin := func() (context.Context, context.CancelFunc) { return context.WithCancel(ctx) }
	learning, cancel := begin() // ends with a round
	defer func() { cancel() }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-looks.C:
			a.tick(at(time.Now()))
		case <-connected:
			l.link.tasks.start(l.link.look)
		case <-a.work:
		}
		// A link between NATS servers may be cut. The own heartbeats go on, and changes may be
		// missed.
		silent := l.group.allSilent(time.Now())
		if silent && !parted {
			a.relearn(theRecords)
		}
		parted = silent
		do := a.next(at(time.Now()))
		if do.state != was {
			if was = do.state; was == stateAway {
				l.cfg.Log.Warn("this generator stood still or was cut off from NATS",
					"for", do.lasted.Round(time.Millisecond))
			}
			signal(l.heartbeats.changed) // and the services are opened again
		}
		if do.reconnect && l.link.conn.Opts.InProcessServer == nil { // else there is no other server
			l.link.tasks.start(l.reconnect)
		}
		if do.round != round {
			cancel()
			round = do.round
			learning, cancel = begin()
		}
		for what, f := range []func(context.Context) error{theRecords: l.records, theWorker: l.worker} {
			if do.learn[what] {
				within := learning
				l.link.tasks.start(func() {
					ctx, done := context.WithTimeout(within, do.patience)
					defer done()
					a.learned(at(time.Now()), do.round, what, f(ctx))
				})
			}
		}
	}
}

// reconnect reconnects if the connection counts as connected.
func (l *learner) reconnect() {
	if l.link.conn.IsConnected() {
		l.cfg.Log.Warn("reconnecting, because the generator's own heartbeats do not come back",
			"url", l.link.conn.ConnectedUrlRedacted())
		l.link.reconnect()
	}
}

// records brings all records up to date, and so drops the IDs in memory below the max_id that
// operators have set. The heartbeat that ended the absence announced this generator, so changes
// have waited for it since.
func (l *learner) records(ctx context.Context) error {
	if !l.phase.opened.Load() { // nothing is in memory
		return nil
	}
	return l.cfg.Records.Sync(ctx)
}

// worker checks the worker's record.
func (l *learner) worker(ctx context.Context) error {
	if l.flakes.noWorker() == nil {
		l.flakes.Verify(ctx)
	}
	return ctx.Err()
}
