package generator

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/internal/wire"
)

const (
	// offerLasts is how long an answer counts for other requests: as many as ask at once need one question.
	offerLasts = 100 * time.Millisecond
	// maxOffers bounds the tags of which answers are kept.
	maxOffers = 10_000
)

// offers are the last answers to the question who has IDs, by tag. The zero value is ready, and its methods are safe
// for concurrent use.
type offers struct {
	mu sync.Mutex
	of map[string]*asked
}

// asked is a question that was sent, or its answer. The lock of offers guards it.
type asked struct {
	n        int64         // IDs that were asked for
	failed   string        // the run whose offer was wrong just before: that of any other one is better
	answered chan struct{} // closed when the answer is there, or none comes
	offer                  // no run: nobody has so many
	wrong    bool          // its run did not have them
	until    time.Time     // when it is too old; zero: it is not answered yet
}

// useless reports whether the answer does not say who has n IDs now.
func (o *asked) useless(now time.Time, n int64) bool {
	if o.until.IsZero() {
		return false
	}
	return !now.Before(o.until) || o.Run == "" && n < o.n || o.Run != "" && o.Left < n
}

// find returns the question about a tag that can answer who has n IDs, and whether the caller must send it.
func (o *offers) find(tag string, n int64) (q *asked, isNew bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q = o.of[tag]
	if q != nil && !q.useless(time.Now(), n) {
		return q, false
	}
	if o.of == nil || len(o.of) >= maxOffers {
		o.of = make(map[string]*asked)
	}
	failed := ""
	if q != nil && q.wrong {
		failed = q.Run
	}
	q = &asked{n: n, failed: failed, answered: make(chan struct{})}
	o.of[tag] = q
	return q, true
}

// answer ends a question.
func (o *offers) answer(q *asked, got offer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q.offer, q.until = got, time.Now().Add(offerLasts)
	close(q.answered)
}

// use takes n IDs off what an answer offers. again: it does not say who has so many, and must be asked again.
func (o *offers) use(q *asked, n int64) (run string, again bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if q.useless(time.Now(), n) {
		return "", true
	}
	q.Left -= n
	return q.Run, false
}

// forget drops the answer that names this run, because it was wrong.
func (o *offers) forget(tag, run string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if q := o.of[tag]; q != nil && q.Run == run {
		q.wrong, q.until = true, time.Now()
	}
}

// whoHas returns the run of another generator that has n IDs of a tag; empty: none has. No tag: snowflakes.
func (g *Generator) whoHas(ctx context.Context, tag string, n int64) (run string) {
	for ctx.Err() == nil {
		q, isNew := g.offers.find(tag, n)
		if isNew {
			g.offers.answer(q, g.askWhoHas(tag, n, q.failed))
		}
		select {
		case <-q.answered:
		case <-ctx.Done():
			return ""
		}
		if run, again := g.offers.use(q, n); !again {
			return run
		}
	}
	return ""
}

// askWhoHas asks all generators, and returns the first offer: it is of one that is near, or has the IDs in memory. That
// of the run that failed counts only if there is no other. It ends early when all that are heard have none.
func (g *Generator) askWhoHas(tag string, n int64, failed string) (second offer) {
	installation := g.installation()
	if installation == "" { // another installation has other IDs of the same tag
		return second
	}
	ctx, cancel := context.WithTimeout(context.Background(), offerWait)
	defer cancel()
	inbox := g.cfg.Conn.NewInbox()
	answers, err := g.cfg.Conn.SubscribeSync(inbox)
	if err == nil {
		defer answers.Unsubscribe()
		err = g.cfg.Conn.PublishRequest(wire.SubjectHave, inbox, wire.Encode(haveQuestion{g.group.self, installation, tag, n}))
	}
	for heard := len(g.group.present(time.Now())); err == nil && heard > 0; heard-- {
		var msg *nats.Msg
		if msg, err = answers.NextMsgWithContext(ctx); err != nil {
			break
		}
		var got offer
		switch {
		case json.Unmarshal(msg.Data, &got) != nil || got.Left < n || got.Run == "":
		case got.Run == failed:
			second = got
		default:
			return got
		}
	}
	if second.Run == "" {
		g.log.Debug("no other generator has the IDs of a request", "tag", tag, "count", n, "error", err)
	}
	return second
}
