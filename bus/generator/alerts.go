package generator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/internal/outbox"
	"github.com/leafbus/leafbus/snowflake"
)

const (
	// degradedStart is how long NATS may catch up with its cluster after a start before that raises
	// an alert.
	degradedStart = 10 * time.Second
	// formTime is how long a new cluster and its first generator may take until the store is open
	// and a worker is held.
	formTime = 15 * time.Second
	// recordsPatience is how long the records may be unavailable before that raises an alert, and
	// passingTrouble how long what often passes may last.
	recordsPatience = time.Second
	passingTrouble  = 5 * time.Second
	// clockOff is how far the clock may differ from those of the other generators.
	clockOff = 500 * time.Millisecond
)

// alerts sees what is wrong at this generator now, in addition to the events of other parts. The
// loop of Run owns it, so it has no lock.
type alerts struct {
	*base
	findings   *findings
	conditions []*condition

	refillsFail time.Time // when the log last said so; zero: they do not
}

// condition is something that may be wrong.
type condition struct {
	kind     string                    // of the finding, and of the alert
	why      func(now time.Time) error // what is wrong; nil: nothing is. It does not block
	patience time.Duration             // how long it must be wrong
	start    time.Duration             // the patience until it was well once, if that is longer
	// alert returns the body of the alert. Its end has the Episode that is the last word of kind.
	// nil: there is none.
	alert func(err error, since time.Time) any

	// Owned by note.
	since time.Time // when it became wrong; zero: it is well
	found bool      // it has been wrong for as long as the patience
}

// conditions are all of a generator.
func (g *Generator) conditions() []*condition {
	cfg, node := g.cfg, g.cfg.Node
	start := time.Duration(0)
	if cfg.NATSErr() != nil {
		start = degradedStart
	}
	list := []*condition{
		{kind: "nats.degraded", start: start,
			why: func(now time.Time) error { return cmp.Or(cfg.NATSErr(), g.spreading.err(now)) },
			alert: func(err error, _ time.Time) any {
				return events.NATSDegraded{Node: node, Cause: err.Error()}
			}},
		{kind: "records.unavailable", patience: recordsPatience,
			why: func(time.Time) error {
				if !g.phase.opened.Load() {
					return nil
				}
				return cmp.Or(cfg.Records.Err(), cfg.Unwritable())
			},
			alert: func(err error, since time.Time) any {
				return events.Unavailable{Node: node, Error: err.Error(), SinceMS: since.UnixMilli()}
			}},
		{kind: "registry.unavailable", patience: passingTrouble,
			why: func(time.Time) error { return g.flakes.State().RegistryErr },
			alert: func(err error, since time.Time) any {
				return events.Unavailable{Node: node, Error: err.Error(), SinceMS: since.UnixMilli()}
			}},
		{kind: "node.stale",
			why: func(now time.Time) error { return g.group.away.staleErr(now) },
			alert: func(err error, _ time.Time) any {
				return events.Stale{Node: node, Error: err.Error()}
			}},
		{kind: "store.waiting", patience: formTime, why: func(time.Time) error {
			if why := g.phase.unready.Load(); why != nil && !g.phase.prepared.Load() {
				return *why
			}
			return nil
		}},
		{kind: "worker.missing", patience: passingTrouble, start: formTime, why: func(time.Time) error {
			if err := g.snowflakes.healthy(); !errors.Is(err, snowflake.ErrClockBackwards) {
				return err
			}
			return nil
		}},
		{kind: "events.unavailable", patience: passingTrouble, why: func(time.Time) error { return g.outbox.Err() }},
		{kind: "nats.unheard", patience: passingTrouble, why: func(time.Time) error { return g.state.busErr() }},
		{kind: "clock.off", patience: passingTrouble, why: func(now time.Time) error {
			offset, ok := g.group.offset(now)
			if by := milliseconds(offset); ok && by.Abs() > clockOff {
				return fmt.Errorf("its clock differs by %v from those of the other generators", by.Abs())
			}
			return nil
		}},
	}
	if cfg.Numbers != nil {
		list = append(list, &condition{kind: "database.unavailable", patience: recordsPatience,
			why: func(time.Time) error { return cfg.Numbers.Err() }})
	}
	return append(list, g.checks.conditions()...)
}

func (a *alerts) look(now time.Time) {
	a.lookRefills(now)
	a.findings.keep("segment.ending", a.alloc.StillEnding) // who changes the tag publishes the end
	for _, c := range a.conditions {
		a.judge(now, c)
	}
}

// judge begins or ends the episode of a condition.
func (a *alerts) judge(now time.Time, c *condition) {
	err := c.why(now)
	if errors.Is(err, errNotJoined) {
		return // the finding store.waiting has the reason
	}
	begins, ends := c.note(now, err)
	node := a.cfg.Node
	if c.found {
		a.findings.begin(c.kind, node, c.since, err)
	}
	switch {
	case begins:
		level := slog.LevelError
		if kinds[c.kind].severity == admin.Warning {
			level = slog.LevelWarn
		}
		a.cfg.Log.Log(context.Background(), level, c.kind, "error", err, "fix", kinds[c.kind].do)
		if c.alert != nil {
			a.findings.send(outbox.NewEvent(c.kind, node, node, c.alert(err, c.since)))
		}
	case ends:
		a.findings.end(c.kind, node)
		a.cfg.Log.Info("it is over: "+c.kind, "node", node)
		if c.alert != nil {
			group, what, _ := strings.Cut(c.kind, ".")
			over := events.Recovered{Node: node, Episode: what}
			a.findings.send(outbox.NewEvent(group+".recovered", node, node, over))
		}
	}
}

// note notes what is wrong; nil: nothing is. It reports whether an episode begins or ends.
func (c *condition) note(now time.Time, wrong error) (begins, ends bool) {
	if wrong == nil {
		ends = c.found
		c.since, c.found, c.start = time.Time{}, false, 0
		return false, ends
	}
	if c.since.IsZero() {
		c.since = now
	}
	begins = !c.found && now.Sub(c.since) >= max(c.patience, c.start)
	c.found = c.found || begins
	return begins, false
}

// lookRefills logs once a minute that refills fail, and when none fails any more. Events report
// each tag; the log reports the store.
func (a *alerts) lookRefills(now time.Time) {
	switch f := a.alloc.Failing(); {
	case f.Store != nil && now.Sub(a.refillsFail) > repeatLog:
		a.refillsFail = now
		a.cfg.Log.Warn("refills fail: only IDs in memory are handed out", "error", f.Store, "tags", f.Tags)
	case f.Store == nil && !a.refillsFail.IsZero():
		a.refillsFail = time.Time{}
		a.cfg.Log.Info("refills succeed again")
	}
}

// checksEvery is the pause between two looks of a check.
const checksEvery = 10 * time.Second

// checks look around the generator. They ask others, so they have a goroutine, run, and keep what
// they found. The other methods are safe for concurrent use.
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
