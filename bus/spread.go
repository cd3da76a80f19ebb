package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
)

const (
	// spreadTimeout bounds the wait until all generators took in a change. It
	// is longer than a generator that has gone is taken for present.
	spreadTimeout = beatExpires + time.Second
	// spreadAgain is when those that did not answer are told again.
	spreadAgain = 500 * time.Millisecond
)

// spread takes in a tag's new record and waits until every generator that is
// there has done so too: from then on none hands out an ID below its floor.
func (g *Generator) spread(ctx context.Context, t allocator.Tag) error {
	g.alloc.Apply(t)
	confirmed := make(map[string]bool) // by id of the run
	missing := func() (nodes []string) {
		for _, b := range g.presence.present(time.Now()) {
			if !confirmed[b.ID] {
				nodes = append(nodes, b.Node)
			}
		}
		return nodes
	}
	if len(missing()) == 0 {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, spreadTimeout)
	defer cancel()
	inbox := g.cfg.Conn.NewInbox()
	answers, err := g.cfg.Conn.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer answers.Unsubscribe()
	for ctx.Err() == nil {
		if err := g.cfg.Conn.PublishRequest(subjectTagChanged, inbox, encode(t)); err != nil {
			return err
		}
		round, cancel := context.WithTimeout(ctx, spreadAgain)
		for len(missing()) > 0 {
			msg, err := answers.NextMsgWithContext(round)
			if err != nil {
				break
			}
			confirmed[string(msg.Data)] = true
		}
		cancel()
		if len(missing()) == 0 {
			return nil
		}
	}
	return fmt.Errorf("%w: the store has the change of %s, but %v did not confirm it and may still hand out IDs from before; repeat the command",
		allocator.ErrTimedOut, t.Name, missing())
}

// changed takes in a tag's record that another generator spreads.
func (g *Generator) changed(msg *nats.Msg) {
	var t allocator.Tag
	if err := json.Unmarshal(msg.Data, &t); err != nil || allocator.CheckTag(t.Name) != nil {
		g.log.Warn("a tag's change that cannot be read", "error", err)
		return
	}
	g.alloc.Apply(t)
	if msg.Reply == "" {
		return
	}
	if err := msg.Respond([]byte(g.id)); err != nil {
		g.log.Error("a reply cannot be sent", "error", err)
	}
}
