package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus/internal/wire"
)

const (
	// An attempt lasts for this part of the time that is left, but at least leastAttempt and at most mostAttempt. Then the
	// request is sent again. An answer to an earlier attempt still counts.
	attemptPart  = 5
	leastAttempt = 20 * time.Millisecond
	mostAttempt  = 4 * time.Second
	// Attempts while no generator is heard.
	deafPart  = 3
	leastDeaf = 50 * time.Millisecond
	// Pauses after a refusal, if the answer has no hint of its own.
	firstRetryPause = 20 * time.Millisecond
	lastRetryPause  = time.Second
	// lastTick is the longest time between two looks at a call that waits.
	lastTick = time.Second / 2
)

// request is what a call asks for, and how.
type request struct {
	subject  string
	count    int64 // of IDs; 0: body is the request
	body     []byte
	unhedged bool      // it is sent again only after an attempt
	lateness *lateness // after how long it is late and sent again; nil: it is not for IDs

	failed *atomic.Pointer[error] // gets the error of each attempt, unless the one before it says more; may be nil

	left func() time.Duration // how long the most urgent caller waits; nil: until the deadline of the call
	late func()               // is called once if the answer is late; may be nil
	// more gets the answers that come after the one that counts, and when their requests were sent; nil: their IDs are
	// gaps.
	more func(msg *nats.Msg, asked time.Time)
}

// pending is a call that waits for an answer.
type pending struct {
	request
	c        *Client
	answers  chan arrival
	timer    *time.Timer
	number   [20]byte // of count
	sent     []sending
	open     int           // of sent: without an answer
	before   error         // the connection's last error when the call began
	probed   bool          // the call has probed its permissions
	deadline time.Time     // of its context, or else of the client; zero: none
	own      bool          // the deadline is that of the client, and no context ends the call then
	pause    time.Duration // after the next refusal
	paused   bool          // since the last refusal
	why      error         // the last attempt failed
	won      bool          // the call has its answer

	attemptAt, tickAt time.Time // when the next attempt begins, and when to look at this one
	ticks             int       // of this attempt
	heard             bool      // this attempt got an answer or a refusal
	hedges            int       // of this attempt
	unpaid            int       // hedges of all attempts. They cost nothing if the first request stays silent
	deaf              bool      // no generator answered any call meanwhile, so the delay learns nothing from this one
}

// sending is a request that was sent.
type sending struct {
	token uint64 // 0: it is not waited for any more
	at    time.Time
}

var calls = sync.Pool{New: func() any {
	p := &pending{answers: make(chan arrival, mostAnswers), timer: time.NewTimer(time.Hour)}
	p.timer.Stop()
	return p
}}

// ask sends a request, and again where that may help, until the context is done. It returns the first answer with what
// was asked for, and when its request was sent, or the error that an answer carries.
func (c *Client) ask(ctx context.Context, r request) (msg *nats.Msg, asked time.Time, err error) {
	p := calls.Get().(*pending)
	p.request, p.c, p.pause = r, c, firstRetryPause
	defer p.end()
	if r.count > 0 {
		p.body = strconv.AppendInt(p.number[:0], r.count, 10)
	}
	if err := c.checkSize(p.subject); err != nil {
		return nil, asked, err
	}
	now := time.Now()
	p.attemptAt, p.before = now, c.nc.LastError()
	var bounded bool
	if p.deadline, bounded = ctx.Deadline(); !bounded && c.timeout > 0 && r.left == nil {
		p.deadline, p.own = now.Add(c.timeout), true
	}
	for {
		err = nil
		switch {
		case ctx.Err() != nil, p.own && !now.Before(p.deadline):
			return nil, asked, p.gaveUp(ctx)
		case !now.Before(p.attemptAt):
			err = p.attempt(now)
		case !now.Before(p.tickAt):
			err = p.tick(ctx, now)
		}
		if err == nil {
			var a arrival
			var came bool
			if a, came, now = p.wait(ctx, now); !came {
				continue
			}
			if err = p.look(a, now); err == nil {
				p.won = true
				return a.msg, p.sent[a.i].at, nil
			}
		}
		if errors.Is(err, nats.ErrConnectionClosed) && c.nc.IsDraining() {
			msg, err = p.drained(ctx)
			return msg, now, err
		}
		if !retryable(err) || p.outOfQuota(err, now) {
			p.note(err)
			return nil, asked, err
		}
		p.refused(err, now)
	}
}

// drained asks while the connection drains. That ends the inbox at once, and the subscription of nats.go last.
func (p *pending) drained(ctx context.Context) (*nats.Msg, error) {
	if p.own {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, p.deadline)
		defer cancel()
	}
	msg, err := p.c.nc.RequestWithContext(ctx, p.subject, p.body)
	if err == nil {
		err = ReplyError(msg)
	}
	return msg, err
}

// attempt sends the request, for the first time or again.
func (p *pending) attempt(now time.Time) error {
	again := len(p.sent) > 0
	if again && !p.heard {
		if p.c.hedging.deaf(now) { // else another generator may still answer this call
			p.c.hedging.pay(p.hedges)
			p.unpaid -= p.hedges
		}
		p.note(wire.Silent(p.subject))
	}
	p.ticks, p.hedges, p.heard, p.paused = 0, 0, false, false
	p.attemptAt, p.tickAt = now.Add(p.length(now)), now.Add(leastHedgeDelay)
	if p.lateness != nil {
		p.tickAt = now.Add(time.Duration(cmp.Or(p.lateness.delay.Load(), int64(leastHedgeDelay))))
	}
	if again && p.late != nil {
		p.late()
		p.late = nil
	}
	err := p.send(now)
	switch {
	case err != nil || p.lateness == nil:
	case again:
		p.c.hedging.retries.Add(1)
	default:
		p.c.hedging.began()
	}
	return err
}

// length returns how long an attempt may last.
func (p *pending) length(now time.Time) time.Duration {
	left := DefaultTimeout
	switch {
	case p.left != nil:
		left = p.left()
	case !p.deadline.IsZero():
		left = p.deadline.Sub(now)
	}
	length := max(left/attemptPart, leastAttempt)
	if p.c.hedging.deaf(now) { // many requests would only add load
		length = max(left/deafPart, leastDeaf)
	}
	return min(length, p.c.attempt)
}

// tick looks at a request that is late, and sends it again if it may.
func (p *pending) tick(ctx context.Context, now time.Time) error {
	p.deaf = p.deaf || p.c.hedging.deaf(now)
	behind := now.Sub(p.tickAt) > hedgePause/2 // this process stood still, so the answer may be here in a moment
	p.ticks++
	p.tickAt = now.Add(min(hedgePause<<min(max(p.ticks-mostHedges, 0), 10), lastTick))
	if p.late != nil && !p.c.hedging.off {
		p.late()
		p.late = nil
	}
	if err := p.denied(ctx); err != nil {
		return err
	}
	if p.lateness == nil || p.lateness.delay.Load() == 0 || p.unhedged || behind || p.ticks > mostHedges ||
		!p.c.hedging.may(now) {
		return wire.Away(p.c.nc) // then the answers are lost
	}
	if err := p.send(now); err != nil {
		return err
	}
	p.hedges++
	p.unpaid++
	p.c.hedging.sent(now)
	return nil
}

// send sends the request.
func (p *pending) send(now time.Time) error {
	if err := wire.Away(p.c.nc); err != nil {
		return err
	}
	for i := 0; p.open >= mostAnswers; i++ {
		p.leave(i, nil)
	}
	token, reply, err := p.c.inbox.expect(p, len(p.sent))
	if err != nil {
		return err
	}
	p.sent, p.open = append(p.sent, sending{token, now}), p.open+1
	return p.c.nc.PublishRequest(p.subject, reply, p.body)
}

// wait waits for an answer, or until it is time to do something.
func (p *pending) wait(ctx context.Context, now time.Time) (a arrival, came bool, _ time.Time) {
	next := p.attemptAt
	if p.tickAt.Before(next) {
		next = p.tickAt
	}
	if p.own && p.deadline.Before(next) {
		next = p.deadline
	}
	p.timer.Reset(next.Sub(now))
	select {
	case a = <-p.answers:
		came = true
	case <-p.timer.C:
	case <-ctx.Done():
	}
	return a, came, time.Now()
}

// look returns the error that an answer carries.
func (p *pending) look(a arrival, now time.Time) error {
	if a.msg == nil {
		return nats.ErrConnectionClosed
	}
	p.heard = true
	p.c.hedging.heard()
	if s := &p.sent[a.i]; s.token != 0 { // else it was given up meanwhile
		s.token = 0
		p.open--
	}
	if noResponders(a.msg) {
		return wire.NoResponders(p.subject)
	}
	err := ReplyError(a.msg)
	if err == nil && p.lateness != nil && !p.deaf {
		p.lateness.observe(now.Sub(p.sent[a.i].at))
	}
	return err
}

// noResponders reports whether the NATS server itself answered that nobody answers this subject.
func noResponders(msg *nats.Msg) bool {
	return len(msg.Data) == 0 && msg.Header.Get("Status") == "503"
}

// refused makes the next attempt begin after a pause. What was sent before may still be answered.
func (p *pending) refused(err error, now time.Time) {
	p.note(err)
	if p.paused {
		return
	}
	wait := firstRetryPause
	if !errors.Is(err, nats.ErrConnectionReconnecting) { // to look at the connection costs nothing
		wait, p.pause = p.pause, min(2*p.pause, lastRetryPause)
	}
	if e, ok := errors.AsType[*Error](err); ok {
		// At most a second: another generator may be able to answer sooner.
		wait = max(wait, min(e.RetryAfter, lastRetryPause))
	}
	p.paused = true
	p.attemptAt = now.Add(wait + rand.N(wait/2)) // callers that were refused together must not return together
	p.tickAt = p.attemptAt
}

// outOfQuota reports whether the tag's quota is used up until the call is over, or the most urgent of its callers has
// left.
func (p *pending) outOfQuota(err error, now time.Time) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Reason != QuotaExceeded {
		return false
	}
	if p.left != nil && e.RetryAfter >= p.left() {
		return true
	}
	return e.RetryAfter == 0 || !p.deadline.IsZero() && !now.Add(e.RetryAfter).Before(p.deadline)
}

// note keeps why there are no IDs. A timeout says less than the error before it.
func (p *pending) note(err error) {
	if p.why != nil && timedOut(err) {
		return
	}
	p.why = err
	if p.failed != nil {
		p.failed.Store(&err)
	}
}

// gaveUp returns the error of a call whose time is over.
func (p *pending) gaveUp(ctx context.Context) error {
	if p.why == nil && p.open > 0 {
		p.note(wire.Silent(p.subject))
	}
	err := wire.GaveUp(ctx, cmp.Or(p.why, wire.Away(p.c.nc), ctx.Err(), context.DeadlineExceeded))
	if ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) { // it was the client's timeout
		err = fmt.Errorf("%w (%w)", err, context.DeadlineExceeded)
	}
	return err
}

// leave gives up the i-th request, unless it was answered. If its answer comes later, late gets it. Without late the
// answer is dropped.
func (p *pending) leave(i int, late func(*nats.Msg)) {
	if s := &p.sent[i]; s.token != 0 {
		p.c.inbox.leave(s.token, late)
		s.token = 0
		p.open--
	}
}

// end releases what a call used, and settles what its hedges cost.
func (p *pending) end() {
	p.timer.Stop()
	if p.unpaid > 0 && (!p.won || p.sent[0].token == 0) {
		p.c.hedging.pay(p.unpaid)
		p.unpaid = 0
	}
	for i, s := range p.sent {
		if s.token != 0 {
			p.leave(i, p.afterwards(i))
		}
	}
	for len(p.answers) > 0 { // they came after the one that counts
		a := <-p.answers
		if late := p.afterwards(a.i); a.msg != nil && late != nil {
			late(a.msg)
		}
	}
	*p = pending{answers: p.answers, timer: p.timer, sent: p.sent[:0]}
	calls.Put(p)
}

// afterwards returns what happens if the i-th request is answered when the call has ended; nil: nothing. If it is the
// first one, and its generator was only slow, the hedges cost something.
func (p *pending) afterwards(i int) func(*nats.Msg) {
	h, lateness, deaf, at, more, unpaid := p.c.hedging, p.lateness, p.deaf, p.sent[i].at, p.more, 0
	if i == 0 {
		unpaid = p.unpaid
	}
	if unpaid == 0 && more == nil {
		return nil
	}
	return func(msg *nats.Msg) {
		if took := time.Since(at); unpaid > 0 && took < silence {
			h.pay(unpaid)
			if !deaf {
				lateness.observe(took)
			}
		}
		if more != nil {
			more(msg, at)
		}
	}
}
