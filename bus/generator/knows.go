package generator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

const (
	// knowsTimeout bounds the wait for the generators that are heard.
	knowsTimeout = 3 * time.Second
	// mostAsked is the most names in one question.
	mostAsked = 1000
)

// knowsQuestion asks the other generators what they know of tags that have no record.
type knowsQuestion struct {
	Run   string   `json:"run"`
	Names []string `json:"names"`
}

// knowsAnswer has what the generator knows of these names.
type knowsAnswer struct {
	Run   string                     `json:"run"`
	Known map[string]allocator.Known `json:"known"`
}

// questions collects the names that are asked for while a question is under way: the next one has them all. The zero
// value is ready.
type questions struct {
	mu      sync.Mutex
	pending []*asking
	busy    bool // a goroutine asks
}

// asking is a question that callers wait for.
type asking struct {
	names map[string]bool
	done  chan struct{}
	known map[string]allocator.Known // once done is closed
	err   error
}

// add returns the question that will ask for a name, and whether the caller must start a goroutine for it.
func (q *questions) add(tag string) (a *asking, start bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.pending); n > 0 && len(q.pending[n-1].names) < mostAsked {
		a = q.pending[n-1]
	} else {
		a = &asking{names: make(map[string]bool), done: make(chan struct{}), known: make(map[string]allocator.Known)}
		q.pending = append(q.pending, a)
	}
	a.names[tag] = true
	start = !q.busy
	q.busy = true
	return a, start
}

// next takes the next question; nil: there is none.
func (q *questions) next() (a *asking) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy = len(q.pending) > 0; q.busy {
		a = q.pending[0]
		q.pending = q.pending[1:]
	}
	return a
}

// askKnown asks all generators that are heard what they know of a tag that has no record. A new record must begin
// above. If one does not answer, that is logged. It is an error while all records are lost, because then that one may
// know what nobody else does.
func (g *Generator) askKnown(ctx context.Context, tag string) (allocator.Known, error) {
	if err := g.hearPeers(ctx); err != nil {
		return allocator.Known{}, err
	}
	if len(g.group.present(time.Now())) == 0 {
		return allocator.Known{}, nil
	}
	a, start := g.questions.add(tag)
	if start && !g.tasks.start(func() {
		for a := g.questions.next(); a != nil; a = g.questions.next() {
			a.err = g.askPeers(a)
			close(a.done)
		}
	}) {
		return allocator.Known{}, allocator.ErrClosed
	}
	select {
	case <-a.done:
		return a.known[tag], a.err
	case <-ctx.Done():
		return allocator.Known{}, ctx.Err()
	}
}

// askPeers asks a question of all generators that are heard.
func (g *Generator) askPeers(a *asking) error {
	ctx, cancel := context.WithTimeout(g.life, knowsTimeout)
	defer cancel()
	inbox := g.cfg.Conn.NewInbox()
	answers, err := g.cfg.Conn.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer answers.Unsubscribe()
	question := wire.Encode(knowsQuestion{g.group.self, slices.Collect(maps.Keys(a.names))})
	answered := make(map[string]bool)
	for ctx.Err() == nil {
		if err := g.cfg.Conn.PublishRequest(wire.SubjectKnows, inbox, question); err != nil {
			return err
		}
		round, cancel := context.WithTimeout(ctx, confirmAgain)
		for len(g.silent(answered)) > 0 {
			msg, err := answers.NextMsgWithContext(round)
			if err != nil {
				break
			}
			var answer knowsAnswer
			if json.Unmarshal(msg.Data, &answer) != nil {
				continue
			}
			answered[answer.Run] = true
			for tag, known := range answer.Known {
				a.known[tag] = a.known[tag].Merge(known)
			}
		}
		cancel()
		if len(g.silent(answered)) == 0 {
			return nil
		}
	}
	nodes := g.silent(answered)
	if lost := g.cfg.Records.Err(); lost != nil {
		return fmt.Errorf("%w: the generators %v do not say what they know of it", lost, nodes)
	}
	g.log.Warn("records are made without an answer of generators that are heard", "silent", nodes, "tags", len(a.names))
	return nil
}

// silent returns the nodes of the generators of this installation that are heard and have not answered. What one knows
// that has not joined yet is in its folder.
func (g *Generator) silent(answered map[string]bool) (nodes []string) {
	own := g.installation()
	for _, b := range g.group.present(time.Now()) {
		if !answered[b.ID] && (b.Installation == own || b.Witness == own) {
			nodes = append(nodes, b.Node)
		}
	}
	return nodes
}

// heardKnows answers what this generator knows.
func (g *Generator) heardKnows(msg *nats.Msg) {
	var q knowsQuestion
	if err := json.Unmarshal(msg.Data, &q); err != nil || msg.Reply == "" || len(q.Names) > mostAsked {
		g.log.Warn("a question about tags cannot be read", "error", err)
		return
	}
	if q.Run == g.group.self {
		return
	}
	answer := knowsAnswer{g.group.self, make(map[string]allocator.Known)}
	for _, name := range q.Names {
		if known := g.alloc.Known(name); known != (allocator.Known{}) {
			answer.Known[name] = known
		}
	}
	g.respond(msg.Reply, wire.Encode(answer))
}
