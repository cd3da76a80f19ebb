package bus

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// transport is a connection to NATS. Tests of the loop have another one than [line].
type transport interface {
	// publish sends a request. Its answer comes to [exchange.receive] with the number of the line,
	// the token of the call, and the number of the request in the call.
	publish(subject string, body []byte, token uint64, number int) error
	// away returns an error while the connection is lost, or after it was closed. What is sent
	// while it is lost would arrive when nobody waits any more.
	away() error
	// lastError is what the connection reported last, such as a missing permission.
	lastError() error
	end() // it unsubscribes
}

// exchange sends the requests of a client, and hands the answers to its calls. It does not know the
// client, so that a client without users is collected, and its subscriptions with it.
type exchange struct {
	lines   []transport // one or two; set by the client before its first call
	hedging bool
	calls   sync.Pool // without one, a call takes a tenth longer

	mu           sync.Mutex
	since        [2]time.Time // of lines: when the first request was sent that nothing came after; zero: something did
	last         uint64
	open         map[uint64]*call // by token
	small, large budget           // of requests for up to fewIDs, and for more, which take longer
	stats        Stats
}

func newExchange() *exchange {
	fresh := budget{delay: firstDelay, tokens: tokensForHedge}
	return &exchange{
		hedging: true, calls: sync.Pool{New: newCall}, open: make(map[uint64]*call), small: fresh, large: fresh,
	}
}

// close unsubscribes.
func (x *exchange) close() {
	for _, t := range x.lines {
		t.end()
	}
}

// expect notes a request that is about to be sent over one of the lines that are not away. false:
// it is a hedge, and there are too many.
func (x *exchange) expect(c *call, now time.Time, away [2]error, hedge bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	c.hedgeAt = now.Add(c.budget.delay)
	switch {
	case c.token == 0:
		x.last++
		c.token = x.last
		x.open[c.token] = c
		c.budget.called(now)
		x.stats.Requests++
	case !hedge:
		x.stats.Retries++
	case !c.budget.hedge(now):
		return false
	default:
		x.stats.Hedges++
		c.hedges++
		c.owed++
	}
	if c.answered {
		c.pay()
	}
	line := x.line(c, now, away)
	if x.since[line].IsZero() || now.Sub(x.since[line]) > silence { // the second is a look whether it still hangs
		x.since[line] = now
	}
	c.sent = append(c.sent, sending{now, line})
	return true
}

// pay takes what the hedges of a call cost, because its first request was answered.
func (c *call) pay() {
	c.budget.pay(c.owed)
	c.owed = 0
}

// calm sends no hedges for a while: there is no generator, or none that can answer more.
func (x *exchange) calm(c *call, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c.budget.quiet = now.Add(c.budget.delay)
}

// receive hands an answer to its call.
func (x *exchange) receive(line int, token uint64, number int, msg *nats.Msg) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.since[line] = time.Time{}
	c := x.open[token]
	if c == nil || number < 0 || number >= len(c.sent) {
		return
	}
	if number == 0 { // the generator was slow, and hedges were not needed
		c.answered = true
		c.pay()
	}
	if refusal(c.subject, msg) == nil {
		c.budget.observe(c.sent[number].at, time.Now())
	}
	select {
	case c.answers <- msg:
	default:
	}
}

// end forgets a call. If its hedges may still cost something, the exchange waits a little longer
// for the answer to the first request.
func (x *exchange) end(c *call) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c.timer.Stop()
	if c.owed == 0 {
		delete(x.open, c.token)
		for len(c.answers) > 0 { // they came after the one that counts
			<-c.answers
		}
		*c = call{answers: c.answers, timer: c.timer, sent: c.sent[:0]}
		x.calls.Put(c)
		return
	}
	time.AfterFunc(silence, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.open, c.token)
	})
}

// line returns the line for the next request of a call: the two in turn. It passes over one that is
// away, or over which nothing came since a request is late.
func (x *exchange) line(c *call, now time.Time, away [2]error) int {
	if len(x.lines) == 1 {
		return 0
	}
	i := 0
	if n := len(c.sent); n > 0 {
		i = 1 - c.sent[n-1].line
	}
	hangs := func(i int) bool {
		silent := now.Sub(x.since[i])
		return !x.since[i].IsZero() && silent > c.budget.delay && silent <= silence
	}
	if away[i] != nil || away[1-i] == nil && hangs(i) && !hangs(1-i) {
		i = 1 - i
	}
	return i
}
