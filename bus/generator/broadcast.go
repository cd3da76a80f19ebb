package generator

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

const (
	// broadcastTimeout bounds the wait until all generators have applied a change. It is longer
	// than a generator that has gone still counts as present.
	broadcastTimeout = heartbeatExpires + time.Second
	broadcastAgain   = 500 * time.Millisecond // until the change is sent again
)

// tagAnswer is a generator's answer when it has applied a tag's record.
type tagAnswer struct {
	ID   string `json:"id"`          // of the run
	Seen int64  `json:"seen,string"` // the end of all ranges of the tag that the generator knows of
}

// apply applies a tag's record.
func (g *Generator) apply(t allocator.Tag) tagAnswer {
	seen := g.alloc.Seen(t.Name)
	g.alloc.Apply(t)
	return tagAnswer{g.group.self, max(seen, g.alloc.Seen(t.Name))}
}

// broadcastTag applies a tag's new record and waits until every generator that is present has
// applied it too. From then on none hands out an ID below its floor. seen is the end of all ranges
// of the tag that any of them has seen. unheard are the nodes of lost generators, which were not asked.
func (g *Generator) broadcastTag(ctx context.Context, t allocator.Tag) (seen int64, unheard []string, err error) {
	seen = g.apply(t).Seen
	confirmed := make(map[string]bool) // by ID of the run
	var missing error
	done := func() bool {
		now := time.Now()
		here, lost := g.group.members(now)
		var nodes []string
		for _, b := range here {
			if !confirmed[b.ID] {
				nodes = append(nodes, b.Node)
			}
		}
		unheard, missing = lost, nil
		switch {
		case g.group.pulse.age(now) > overdue: // after a pause it has yet to read what the peers sent meanwhile
			missing = errSilent
		case len(nodes) > 0:
			missing = fmt.Errorf("%v did not confirm the change of %s and may still hand out IDs from before", nodes, t.Name)
		}
		return missing == nil
	}
	ctx, cancel := context.WithTimeout(ctx, broadcastTimeout)
	defer cancel()
	inbox := g.cfg.Conn.NewInbox()
	answers, err := g.cfg.Conn.SubscribeSync(inbox)
	if err != nil {
		return 0, nil, err
	}
	defer answers.Unsubscribe()
	for !done() {
		if ctx.Err() != nil {
			return 0, unheard, missing
		}
		if err := g.cfg.Conn.PublishRequest(wire.SubjectTagChanged, inbox, wire.Encode(t)); err != nil {
			return 0, nil, err
		}
		round, cancel := context.WithTimeout(ctx, broadcastAgain)
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
	}
	return seen, unheard, nil
}

// heardTag applies a tag's record from another generator, and confirms it.
func (g *Generator) heardTag(msg *nats.Msg) {
	var t allocator.Tag
	err := json.Unmarshal(msg.Data, &t)
	if err == nil {
		err = allocator.CheckTag(t.Name)
	}
	if err != nil {
		g.log.Warn("a change of a tag cannot be read", "error", err)
		return
	}
	answer := g.apply(t)
	if msg.Reply != "" {
		g.respond(msg.Reply, wire.Encode(answer))
	}
}
