package bus

import (
	"hash/maphash"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/wire"
)

// transport is a connection to NATS. Tests of the loop have another one than [line].
type transport interface {
	// publish sends a request. Its answer comes to [exchange.receive] with the token.
	publish(subject string, body []byte, token uint64) error
	// away returns an error while the connection is lost, or after it was closed. What is sent while it is lost would
	// arrive when nobody waits any more.
	away() error
	// lastError is what the connection reported last, such as a missing permission.
	lastError() error
	end() // it unsubscribes
}

// line is a connection, and the subscription on which its answers arrive. nats.go has such a subscription, too, but it
// takes one answer to a request that it sent once.
type line struct {
	nc *nats.Conn
	x  *exchange

	mu    sync.Mutex
	sub   *nats.Subscription // made before the first request
	inbox string             // begins the subjects of answers. A token ends them
}

func (l *line) publish(subject string, body []byte, token uint64) error {
	inbox, err := l.listen()
	if err != nil {
		return err
	}
	reply := make([]byte, 0, 64)
	reply = append(reply, inbox...)
	return l.nc.PublishRequest(subject, string(strconv.AppendUint(reply, token, 36)), body)
}

func (l *line) listen() (inbox string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sub == nil {
		l.inbox = l.nc.NewInbox() + "."
		prefix := len(l.inbox)
		l.sub, err = l.nc.Subscribe(l.inbox+"*", func(msg *nats.Msg) {
			if token, err := strconv.ParseUint(msg.Subject[min(prefix, len(msg.Subject)):], 36, 64); err == nil {
				l.x.receive(token, msg)
			}
		})
	}
	return l.inbox, err
}

func (l *line) away() error {
	if l.nc.IsClosed() {
		return nats.ErrConnectionClosed
	}
	return wire.Away(l.nc)
}

func (l *line) lastError() error { return l.nc.LastError() }

func (l *line) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sub != nil {
		_ = l.sub.Unsubscribe()
	}
}

// exchange sends the requests of a client, and hands the answers to its calls. It does not know the client, so that a
// client without users is collected, and its subscriptions with it.
type exchange struct {
	lines   []transport // one or two; set by the client before its first call
	hedging bool
	begin   time.Time
	calls   sync.Pool
	delays  delays

	first  atomic.Int32 // of lines: calls begin with it
	silent atomic.Int32 // calls in a row to which the other line brought the answer

	mu     sync.Mutex
	last   uint64 // token. A token is the number of a request
	open   map[uint64]waiting
	budget budget
	stats  Stats
}

// waiting is a request without an answer.
type waiting struct {
	call *call // nil: it has ended
	at   time.Time
	line int
	// Of the first request of a call that has ended with the answer to another one:
	hedges int
	delay  *delay
}

// arrival is an answer, and the request to which it belongs.
type arrival struct {
	msg *nats.Msg
	waiting
}

func newExchange() *exchange {
	return &exchange{
		hedging: true, begin: time.Now(), calls: sync.Pool{New: newCall}, delays: delays{seed: maphash.MakeSeed()},
		open:   make(map[uint64]waiting),
		budget: budget{tokens: tokensForHedge},
	}
}

// end unsubscribes.
func (x *exchange) end() {
	for _, t := range x.lines {
		t.end()
	}
}

// kind is why a request is sent.
type kind int

const (
	begins kind = iota // it is the first one of a call
	hedge              // the answer is late
	retry              // after a refusal, or after a part of the time that is left
)

// expect returns the token of a request that is about to be sent. false: it is a hedge, and there are too many.
func (x *exchange) expect(w waiting, why kind, free bool) (token uint64, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch now := w.at.Sub(x.begin); why {
	case begins:
		x.budget.called(now)
		x.stats.Requests++
	case hedge:
		if !free && !x.budget.hedge(now) {
			return 0, false
		}
		x.stats.Hedges++
	case retry:
		x.stats.Retries++
	}
	x.last++
	x.open[x.last] = w
	return x.last, true
}

// drop gives up a request.
func (x *exchange) drop(token uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.open, token)
}

// calm sends no hedges for a while: there is no generator, or none that can answer more.
func (x *exchange) calm(until time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.budget.quiet = max(x.budget.quiet, until.Sub(x.begin))
}

// receive hands an answer to its call. There is room for all that the call waits for.
func (x *exchange) receive(token uint64, msg *nats.Msg) {
	x.mu.Lock()
	defer x.mu.Unlock()
	w, ok := x.open[token]
	delete(x.open, token)
	switch {
	case !ok:
	case w.call != nil:
		select {
		case w.call.answers <- arrival{msg, w}:
		default:
		}
	default: // the generator was slow, and the hedges were not needed
		x.budget.pay(w.hedges)
		w.delay.observe(w.at.Sub(x.begin), time.Since(x.begin))
	}
}

// forget drops the requests of a call that has ended. If it had hedges, and the first request is not answered yet,
// the exchange waits a little longer for that answer: then the hedges cost something.
func (x *exchange) forget(c *call) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, token := range c.sent {
		w, ok := x.open[token]
		switch {
		case !ok && i == 0: // answered, too
			x.budget.pay(c.hedges)
		case ok && i == 0 && c.hedges > 0:
			x.open[token] = waiting{at: w.at, hedges: c.hedges, delay: c.delay}
			time.AfterFunc(silence, func() { x.drop(token) })
		default:
			delete(x.open, token)
		}
	}
}

// answered notes over which line a call had its answer. If three calls in a row had none over the first line, and had
// one over the other, the other one becomes the first.
func (x *exchange) answered(over int, began int) {
	first := x.first.Load()
	switch {
	case over == int(first):
		if x.silent.Load() != 0 {
			x.silent.Store(0)
		}
	case began != int(first): // it began before the last change
	case x.silent.Add(1) >= mostSilent:
		x.first.CompareAndSwap(first, int32(over))
		x.silent.Store(0)
	}
}

// line returns the line for the next request of a call: the first one, and then the other one in turn.
func (x *exchange) line(before int) int {
	i := int(x.first.Load())
	if len(x.lines) == 1 {
		return 0
	}
	if i == before {
		i = 1 - i
	}
	if x.lines[i].away() != nil && x.lines[1-i].away() == nil {
		i = 1 - i
	}
	return i
}
