package generator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

const (
	// spreadTimeout bounds the wait until all generators took in a change. It
	// is longer than a generator that has gone is taken for present.
	spreadTimeout = beatExpires + time.Second
	// spreadAgain is when those that did not answer are told again.
	spreadAgain = 500 * time.Millisecond
)

// tagAnswer is what a generator answers when it has taken in a tag's record.
type tagAnswer struct {
	ID   string `json:"id"`          // of the run
	Seen int64  `json:"seen,string"` // the end of all ranges of the tag that it knows of
}

// apply takes in a tag's record.
func (g *Generator) apply(t allocator.Tag) tagAnswer {
	seen := g.alloc.Seen(t.Name)
	g.alloc.Apply(t)
	return tagAnswer{g.id, max(seen, g.alloc.Seen(t.Name))}
}

// spread takes in a tag's new record and waits until every generator that is
// there has done so too: from then on none hands out an ID below its floor. It
// returns the end of all ranges of the tag that any of them has seen, and the nodes of those
// that were not asked because they fell silent.
func (g *Generator) spread(ctx context.Context, t allocator.Tag) (seen int64, unheard []string, err error) {
	seen = g.apply(t).Seen
	confirmed := make(map[string]bool) // by id of the run
	var missing error
	done := func() bool {
		var here []beat
		here, unheard, missing = g.roll(time.Now())
		var nodes []string
		for _, b := range here {
			if !confirmed[b.ID] {
				nodes = append(nodes, b.Node)
			}
		}
		if missing == nil && len(nodes) > 0 {
			missing = fmt.Errorf("%v did not confirm the change of %s and may still hand out IDs from before", nodes, t.Name)
		}
		return missing == nil
	}
	if done() {
		return seen, unheard, nil
	}

	ctx, cancel := context.WithTimeout(ctx, spreadTimeout)
	defer cancel()
	inbox := g.cfg.Conn.NewInbox()
	answers, err := g.cfg.Conn.SubscribeSync(inbox)
	if err != nil {
		return 0, nil, err
	}
	defer answers.Unsubscribe()
	for ctx.Err() == nil {
		if err := g.cfg.Conn.PublishRequest(wire.SubjectTagChanged, inbox, wire.Encode(t)); err != nil {
			return 0, nil, err
		}
		round, cancel := context.WithTimeout(ctx, spreadAgain)
		for !done() {
			msg, err := answers.NextMsgWithContext(round)
			if err != nil {
				break
			}
			var a tagAnswer
			if json.Unmarshal(msg.Data, &a) == nil {
				confirmed[a.ID] = true
				seen = max(seen, a.Seen)
			}
		}
		cancel()
		if done() {
			return seen, unheard, nil
		}
	}
	return 0, unheard, missing
}

// roll returns the other generators that are there, and the nodes of those that fell silent.
// After a pause of its own it fails for a moment: the others have not fallen
// silent, but this generator has yet to look at what they said meanwhile.
func (g *Generator) roll(now time.Time) (here []beat, lost []string, err error) {
	here, lost = g.presence.roll(now)
	if g.presence.pulse.age(now) > overdue {
		err = errSilent
	}
	return here, lost, err
}

// unconfirmed is the error of a change that may not be in force everywhere.
func unconfirmed(err error, then string) error {
	return &bus.Error{Code: 504, Reason: bus.TimedOut, Message: fmt.Sprintf("%v; %s", err, then)}
}

// create adds a tag, at or above what any generator has seen of one of that
// name: its record may be gone without a trace. It returns who was not heard.
func (g *Generator) create(ctx context.Context, t allocator.Tag) (_ allocator.Tag, unheard []string, err error) {
	_, err = g.cfg.Store.Get(ctx, t.Name)
	if err == nil {
		return t, nil, fmt.Errorf("%w: %s", allocator.ErrExists, t.Name)
	}
	if !errors.Is(err, allocator.ErrUnknownTag) {
		return t, nil, err
	}
	if err := g.readAgain(ctx); err != nil {
		return t, nil, fmt.Errorf("%w: %w", allocator.ErrUnavailable, err)
	}
	if err := g.hearOthers(ctx); err != nil {
		return t, nil, err
	}
	// Whoever still holds IDs of it, or is about to receive some, gives them up.
	seen, unheard, err := g.spread(ctx, allocator.Tag{Name: t.Name, Deleted: true})
	if err != nil {
		return t, nil, unconfirmed(err, "nothing is created: send it again")
	}
	if err := g.inTime(ctx); err != nil {
		return t, nil, err
	}
	t.MaxID = max(t.MaxID, seen, 1)
	if t, err = g.cfg.Store.Create(ctx, t); err != nil {
		return t, nil, err
	}
	g.alloc.Apply(t)
	g.publish(newEvent("tag.created", t.Name, g.cfg.Node, bus.TagEvent{Node: g.cfg.Node, TagRecord: record(t)}))
	return t, unheard, nil
}

// hearOthers waits until all generators that run have been heard: one that has
// just started, or was cut off, knows of the others only when their beats have come.
func (g *Generator) hearOthers(ctx context.Context) error {
	since := func() time.Duration { return min(time.Since(g.listening), g.guard.since(time.Now())) }
	if since() >= beatExpires {
		return nil
	}
	subject, err := micro.ControlSubject(micro.PingVerb, wire.ServiceLeaf, "")
	if err != nil {
		return err
	}
	missing := make(map[string]bool) // by node
	ask, cancel := context.WithTimeout(ctx, bus.DefaultTimeout)
	defer cancel()
	err = wire.AskAll(ask, g.cfg.Conn, subject, nil, func(msg *nats.Msg) error {
		var ping micro.Ping
		if err := json.Unmarshal(msg.Data, &ping); err != nil {
			return err
		}
		missing[ping.Metadata["node"]] = true
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: the other generators cannot be asked: %w", allocator.ErrUnavailable, err)
	}
	delete(missing, g.cfg.Node)
	tick := time.NewTicker(startLook)
	defer tick.Stop()
	for since() < beatExpires {
		for _, b := range g.presence.present(time.Now()) {
			delete(missing, b.Node)
		}
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil // they have gone
}

// changed takes in a tag's record that another generator spreads.
func (g *Generator) changed(msg *nats.Msg) {
	var t allocator.Tag
	err := json.Unmarshal(msg.Data, &t)
	if err == nil {
		err = allocator.CheckTag(t.Name)
	}
	if err != nil {
		g.log.Warn("a tag's change that cannot be read", "error", err)
		return
	}
	answer := g.apply(t)
	if msg.Reply == "" {
		return
	}
	if err := msg.Respond(wire.Encode(answer)); err != nil {
		g.log.Error("a reply cannot be sent", "error", err)
	}
}
