package generator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/wire"
)

const (
	// confirmTimeout bounds the wait until all generators have a change in force. It is longer
	// than a generator that has gone still counts as present.
	confirmTimeout = heartbeatExpires + time.Second
	// knowsTimeout bounds the wait until the generators that are heard say what they know.
	knowsTimeout = 3 * time.Second
	// maxAsking bounds the names that are asked for at the same time. Each takes a subscription.
	maxAsking = 16
	// confirmAgain is the pause until peers are asked again.
	confirmAgain = 250 * time.Millisecond
	// maxHold is how long claims are kept back for one change by an operator: a few times the way
	// to a far JetStream and back.
	maxHold = time.Second
)

// exchange sends records to the peers, takes in theirs, and asks what they know:
//
//	push, hold ─────► heardPush     reconciles the record, and answers what is in force then
//	confirm, askKnown
//	└── poll ───────► heardPush     until each peer that is heard has answered; askKnown only asks
//
// Its methods are safe for concurrent use. It has no lock, because it remembers nothing.
type exchange struct {
	*base
	asking chan struct{} // has maxAsking slots
}

// pushed is the message about a record that was written: the second way beside the watch, and a
// faster one. With tags in JetStream it is the only sign, beside a generator's own marks, that
// JetStream was restored.
type pushed struct {
	Record       allocator.Tag `json:"record"`
	Revision     uint64        `json:"revision,string,omitempty"` // 0: only the last range of the record counts
	Run          string        `json:"run"`                       // of the sender
	Installation string        `json:"installation,omitempty"`    // that the sender is part of
	// Hold is for how many ms the claims of a strict tag are kept back: an operator's write could
	// lose to them again and again. Below 0: they go on. Then the record has only a name.
	Hold int64 `json:"hold_ms,omitempty"`
	// Asks: the record has only a name. The sender asks what others know of it.
	Asks bool `json:"asks,omitempty"`
}

// known is the answer to a push that wants one: what the generator has in force then, and knows of
// the tag.
type known struct {
	Run string `json:"run"`
	allocator.Known
}

// push sends a record to the other generators.
func (x *exchange) push(s allocator.Stored) { x.send(pushed{Record: s.Tag, Revision: s.Revision}, "") }

// hold makes all generators keep back the claims of a tag, if it is strict, until the record is
// pushed or release is called, but no longer than maxHold.
func (x *exchange) hold(tag string) (release func()) {
	set := func(ms int64) {
		x.alloc.Hold(tag, time.Duration(ms)*time.Millisecond)
		x.send(pushed{Record: allocator.Tag{Name: tag}, Hold: ms}, "")
	}
	set(maxHold.Milliseconds())
	return func() { set(-1) }
}

func (x *exchange) send(p pushed, reply string) {
	p.Run, p.Installation = x.group.self, x.membership.installation()
	x.link.send(&nats.Msg{Subject: wire.SubjectRecord, Reply: reply, Data: wire.Encode(p)})
}

// heardPush takes in a record of another generator, and answers if it asks for that.
func (x *exchange) heardPush(msg *nats.Msg) {
	var p pushed
	err := json.Unmarshal(msg.Data, &p)
	if err == nil {
		err = idspace.CheckTag(p.Record.Name)
	}
	r := p.Record.Last
	if err == nil && (r.First < 0 || r.Last < r.First) {
		err = fmt.Errorf("no range goes from %d to %d", r.First, r.Last)
	}
	if err != nil {
		x.cfg.Log.Warn("a record of another generator cannot be read", "error", err)
		return
	}
	own := x.membership.installation()
	switch {
	case p.Run == x.group.self:
	case p.Installation != "" && own != "" && p.Installation != own: // one of the two ends, see checkRival
	case p.Hold != 0:
		x.alloc.Hold(p.Record.Name, min(time.Duration(p.Hold)*time.Millisecond, maxHold))
	case p.Asks:
		x.answer(msg.Reply, x.alloc.Known(p.Record.Name))
	default:
		known := x.alloc.Push(allocator.Stored{Tag: p.Record, Revision: p.Revision})
		x.alloc.Hold(p.Record.Name, 0)
		x.answer(msg.Reply, known)
	}
}

func (x *exchange) answer(reply string, k allocator.Known) {
	if reply != "" {
		x.link.send(&nats.Msg{Subject: reply, Data: wire.Encode(known{x.group.self, k})})
	}
}

// confirm pushes an operator's change until every generator that is present has it in force. From
// then on none hands out an ID below its floor. If one had newer rules, those of the change are
// written again, above them. unheard are the nodes of lost generators, which were not asked.
func (x *exchange) confirm(ctx context.Context, s allocator.Stored) (is allocator.Stored, unheard []string, err error) {
	x.alloc.Hold(s.Name, 0)
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	push := func(inbox string) { x.send(pushed{Record: s.Tag, Revision: s.Revision}, inbox) }
	silent, unheard, err := x.poll(ctx, push, func(data []byte) (run string, again bool, err error) {
		var a known
		switch {
		case json.Unmarshal(data, &a) != nil || a.Floor < s.Below() || !s.Deleted && a.Version < s.Version: // not yet
			return "", false, nil
		case !s.Deleted && a.Rules != s.Rules:
			s, err = x.alloc.Outvote(ctx, s, a.Version)
			return "", true, err
		}
		return a.Run, false, nil
	})
	if err == nil && len(silent) > 0 {
		err = fmt.Errorf("%v did not confirm the change of %s and may still hand out IDs from before", silent, s.Name)
	}
	return s, unheard, err
}

// askKnown asks all generators that are heard what they know of a tag that has no record. A new
// record must begin above. If one does not answer, that is logged. It is an error while all records
// are lost, because then that one may know what nobody else does.
func (x *exchange) askKnown(ctx context.Context, tag string) (k allocator.Known, err error) {
	if err := x.heartbeats.hearPeers(ctx); err != nil {
		return k, err
	}
	if len(x.group.present(time.Now())) == 0 {
		return k, nil
	}
	select {
	case x.asking <- struct{}{}:
	case <-ctx.Done():
		return k, ctx.Err()
	}
	defer func() { <-x.asking }()
	within, cancel := context.WithTimeout(ctx, knowsTimeout)
	defer cancel()
	ask := func(inbox string) { x.send(pushed{Record: allocator.Tag{Name: tag}, Asks: true}, inbox) }
	silent, _, err := x.poll(within, ask, func(data []byte) (run string, again bool, err error) {
		var a known
		if json.Unmarshal(data, &a) == nil {
			k = k.Merge(a.Known)
		}
		return a.Run, false, nil
	})
	switch lost := x.cfg.Records.Err(); {
	case ctx.Err() != nil:
		return k, ctx.Err()
	case len(silent) > 0 && lost != nil:
		return k, fmt.Errorf("%w: the generators %v do not say what they know of it", lost, silent)
	case len(silent) > 0:
		x.cfg.Log.Warn("a record is made without an answer of generators that are heard", "silent", silent, "tag", tag)
	case !errors.Is(err, errSilent): // hearPeers has found who is there
		return k, err
	}
	return k, nil
}

// poll sends a message to the peers, again and again, until each that is heard has given an answer
// that counts, or ctx is done: then silent are the nodes of the others. take returns whose answer
// counts; again: all must answer what is sent next. unheard are the nodes of lost peers.
func (x *exchange) poll(
	ctx context.Context, send func(inbox string), take func(data []byte) (run string, again bool, err error),
) (silent, unheard []string, err error) {
	inbox := x.cfg.Conn.NewInbox()
	answers, err := x.cfg.Conn.SubscribeSync(inbox)
	if err != nil {
		return nil, nil, err
	}
	defer answers.Unsubscribe()
	answered := make(map[string]bool) // by run
	done := func() bool {
		var here []heartbeat
		now := time.Now()
		here, unheard = x.group.members(now)
		here = slices.DeleteFunc(here, func(b heartbeat) bool { return answered[b.ID] })
		silent, err = nil, nil
		for _, b := range here {
			silent = append(silent, b.Node)
		}
		if !x.group.away.settled(now) { // it has yet to read what the peers sent while it was away
			err = errSilent
		}
		return len(silent) == 0 && err == nil
	}
	for !done() && ctx.Err() == nil {
		send(inbox)
		pause, cancel := context.WithTimeout(ctx, confirmAgain)
		defer cancel()
		for again := false; !again && !done(); {
			msg, ended := answers.NextMsgWithContext(pause)
			if ended != nil {
				<-pause.Done() // if the connection is closed, that is not yet
				break
			}
			var run string
			var failed error
			if run, again, failed = take(msg.Data); failed != nil {
				return silent, unheard, failed
			}
			if answered[run] = true; again {
				clear(answered)
			}
		}
	}
	return silent, unheard, err
}

// leads reports whether this generator compares the database with the records: the one with the
// lowest run does, of those for which the last comparison was a success.
func (x *exchange) leads() bool {
	return !x.group.anyPeer(time.Now(), time.Time{}, func(b heartbeat) bool { return b.Polls && b.ID < x.group.self })
}
