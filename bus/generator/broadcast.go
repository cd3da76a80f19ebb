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
	// spreadTimeout bounds the wait until all generators took in a change. It
	// is longer than a generator that has gone is taken for present.
	broadcastTimeout = heartbeatExpires + time.Second
	// spreadAgain is when those that did not answer are told again.
	broadcastAgain = 500 * time.Millisecond
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
	return tagAnswer{g.group.self, max(seen, g.alloc.Seen(t.Name))}
}

// broadcastTag takes in a tag's new record and waits until every generator that is
// there has done so too: from then on none hands out an ID below its floor. It
// returns the end of all ranges of the tag that any of them has seen, and the nodes of those
// that were not asked because they fell silent.
func (g *Generator) broadcastTag(ctx context.Context, t allocator.Tag) (seen int64, unheard []string, err error) {
	seen = g.apply(t).Seen
	confirmed := make(map[string]bool) // by id of the run
	var missing error
	done := func() bool {
		var here []heartbeat
		here, unheard, missing = g.members(time.Now())
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

	ctx, cancel := context.WithTimeout(ctx, broadcastTimeout)
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
		if done() {
			return seen, unheard, nil
		}
	}
	return 0, unheard, missing
}

// heardTag takes in a tag's record that another generator spreads.
func (g *Generator) heardTag(msg *nats.Msg) {
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
