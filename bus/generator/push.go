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
	// confirmTimeout bounds the wait until all generators have a change in force. It is longer
	// than a generator that has gone still counts as present.
	confirmTimeout = heartbeatExpires + time.Second
	confirmAgain   = 250 * time.Millisecond // until the change is sent again
	// maxHold is how long claims are kept back for one change by an operator: a few times the way to a far JetStream
	// and back.
	maxHold = time.Second
)

// pushed is the message about a record that was written: the second way beside the watch, and a faster one. With tags
// in JetStream it is the only sign, beside a generator's own marks, that JetStream was restored.
type pushed struct {
	Record       allocator.Tag `json:"record"`
	Revision     uint64        `json:"revision,string,omitempty"` // 0: only the last range of the record counts
	Run          string        `json:"run"`                       // of the sender
	Installation string        `json:"installation,omitempty"`    // that the sender is part of
	// Hold is for how many ms the claims of a strict tag are kept back: an operator's write could lose to them again
	// and again. Below 0: they go on. Then the record has only a name.
	Hold int64 `json:"hold_ms,omitempty"`
}

// inForce is the answer to a push that asks for one: what the generator has in force then.
type inForce struct {
	Run string `json:"run"`
	allocator.Known
}

// push sends a record to the other generators.
func (g *Generator) push(s allocator.Stored) {
	g.sendPush(pushed{Record: s.Tag, Revision: s.Revision}, "")
}

// hold makes all generators keep back the claims of a tag, if it is strict, until the record is pushed or release is
// called, but no longer than maxHold.
func (g *Generator) hold(tag string) (release func()) {
	set := func(ms int64) {
		g.alloc.Hold(tag, time.Duration(ms)*time.Millisecond)
		g.sendPush(pushed{Record: allocator.Tag{Name: tag}, Hold: ms}, "")
	}
	set(maxHold.Milliseconds())
	return func() { set(-1) }
}

func (g *Generator) sendPush(p pushed, reply string) {
	p.Run, p.Installation = g.group.self, g.installation()
	msg := &nats.Msg{Subject: wire.SubjectRecord, Reply: reply, Data: wire.Encode(p)}
	if err := g.cfg.Conn.PublishMsg(msg); err != nil {
		g.log.Debug("a record cannot be sent to the other generators", "tag", p.Record.Name, "error", err)
	}
}

// heardPush takes in a record of another generator, and answers if it asks for that.
func (g *Generator) heardPush(msg *nats.Msg) {
	var p pushed
	err := json.Unmarshal(msg.Data, &p)
	if err == nil {
		err = allocator.CheckTag(p.Record.Name)
	}
	r := p.Record.Last
	if err == nil && (r.First < 0 || r.Last < r.First) {
		err = fmt.Errorf("no range goes from %d to %d", r.First, r.Last)
	}
	if err != nil {
		g.log.Warn("a record of another generator cannot be read", "error", err)
		return
	}
	own := g.installation()
	switch {
	case p.Run == g.group.self:
	case p.Installation != "" && own != "" && p.Installation != own: // one of the two installations ends, see checkRival
	case p.Hold != 0:
		g.alloc.Hold(p.Record.Name, min(time.Duration(p.Hold)*time.Millisecond, maxHold))
	default:
		known := g.alloc.Push(allocator.Stored{Tag: p.Record, Revision: p.Revision})
		g.alloc.Hold(p.Record.Name, 0)
		if msg.Reply != "" {
			g.respond(msg.Reply, wire.Encode(inForce{g.group.self, known}))
		}
	}
}

// confirm pushes an operator's change until every generator that is present has it in force. From then on none hands
// out an ID below its floor. If one had newer rules, those of the change are written again, above them. unheard are
// the nodes of lost generators, which were not asked.
func (g *Generator) confirm(ctx context.Context, s allocator.Stored) (is allocator.Stored, unheard []string, err error) {
	g.alloc.Hold(s.Name, 0)
	confirmed := make(map[string]bool) // by run
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
			missing = fmt.Errorf("%v did not confirm the change of %s and may still hand out IDs from before", nodes, s.Name)
		}
		return missing == nil
	}
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	inbox := g.cfg.Conn.NewInbox()
	answers, err := g.cfg.Conn.SubscribeSync(inbox)
	if err != nil {
		return s, nil, err
	}
	defer answers.Unsubscribe()
	for !done() {
		if ctx.Err() != nil {
			return s, unheard, missing
		}
		g.sendPush(pushed{Record: s.Tag, Revision: s.Revision}, inbox)
		round, cancel := context.WithTimeout(ctx, confirmAgain)
		for !done() {
			msg, err := answers.NextMsgWithContext(round)
			if err != nil {
				break
			}
			var a inForce
			if json.Unmarshal(msg.Data, &a) != nil || a.Floor < s.Below() || !s.Deleted && a.Version < s.Version {
				continue
			}
			if !s.Deleted && a.Rules != s.Rules && a.Version >= s.Version {
				if s, err = g.alloc.Outvote(ctx, s, a.Version); err != nil {
					cancel()
					return s, unheard, err
				}
				clear(confirmed)
				break
			}
			confirmed[a.Run] = true
		}
		cancel()
	}
	return s, unheard, nil
}
