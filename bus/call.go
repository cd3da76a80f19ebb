package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/wire"
)

const (
	// A request is sent again after this part of the time that its most urgent caller has, but not sooner than leastGap,
	// and not later than mostGap.
	gapPart  = 5
	leastGap = 20 * time.Millisecond
	mostGap  = 4 * time.Second
	// Pauses after a refusal, if the answer has no hint of its own.
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
	// mostOpen is how many requests of a call may be without an answer. Of more the oldest one is given up.
	mostOpen = 32
)

// request is what a call asks for, and how.
type request struct {
	subject  string
	count    int64 // of IDs; 0: body is the request
	body     []byte
	until    time.Time // the most urgent caller leaves. The context ends when all have; zero: it is the caller's own
	unhedged bool

	failed *atomic.Pointer[error] // gets the error of each attempt, unless the one before it says more; may be nil
	late   func()                 // is called once if the answer is late; may be nil
}

// call is the one loop of all requests:
//
//	exchange.ask
//	  ├ send      the first request, and then after each gap or pause: it always goes out
//	  ├ hedge     while the answer is late: it goes out if the budget allows it
//	  ├ wait      for an answer to any of them, or until it is time to send
//	  └ look      IDs: done. A refusal that may pass: a pause. Another error: done
type call struct {
	request
	x       *exchange
	answers chan arrival
	timer   *time.Timer
	number  [20]byte // of count
	delay   *delay

	deadline time.Time // of its context, or else of the client; zero: none

	sendAt  time.Time // the next request goes out
	hedgeAt time.Time // the next hedge may
	gap     time.Duration
	pause   time.Duration // after the next refusal
	paused  bool          // since a refusal, until sendAt
	why     error         // the last attempt failed

	sent   []uint64 // tokens
	over   int      // the line of the last one; -1: there is none
	began  int      // the line of the first one
	hedges int
}

func newCall() any {
	c := &call{answers: make(chan arrival, mostOpen), timer: time.NewTimer(time.Hour)}
	c.timer.Stop()
	return c
}

// ask sends a request, and again where that may help, until the context is done. timeout bounds a call whose context
// has no deadline. It returns the first answer with what was asked for, or the error that an answer carries.
func (x *exchange) ask(ctx context.Context, timeout time.Duration, r request) (*nats.Msg, error) {
	c := x.calls.Get().(*call)
	c.request, c.x, c.over = r, x, -1
	defer c.end()
	now := time.Now()
	c.start(ctx, timeout, now)
	for {
		var err error
		switch {
		case ctx.Err() != nil, !c.deadline.IsZero() && !now.Before(c.deadline):
			return nil, c.gaveUp(ctx)
		case !now.Before(c.sendAt):
			err = c.send(now)
		case !now.Before(c.hedgeAt):
			err = c.hedge(now)
		}
		if err == nil {
			var a arrival
			var came bool
			if a, came, now = c.wait(ctx, now); !came {
				continue
			}
			if err = c.look(a, now); err == nil {
				return a.msg, nil
			}
		}
		if !retryable(err) || c.outOfQuota(err, now) {
			c.note(err)
			return nil, err
		}
		c.refused(err, now)
	}
}

func (c *call) start(ctx context.Context, timeout time.Duration, now time.Time) {
	c.delay = c.x.delays.delay(c.subject, c.count)
	if c.count > 0 {
		c.body = strconv.AppendInt(c.number[:0], c.count, 10)
	}
	var bounded bool
	if c.deadline, bounded = ctx.Deadline(); !bounded && timeout > 0 && c.until.IsZero() {
		c.deadline = now.Add(timeout)
	}
	if c.until.IsZero() {
		c.until = c.deadline
	}
	c.gap = wire.DefaultTimeout / gapPart
	if !c.until.IsZero() {
		c.gap = min(max(c.until.Sub(now)/gapPart, leastGap), mostGap)
	}
	c.sendAt, c.pause = now, firstPause
}

// send sends the request, for the first time or again.
func (c *call) send(now time.Time) error {
	why := retry
	if c.over < 0 {
		why = begins
	} else if c.why == nil {
		c.note(wire.Silent(c.subject))
	}
	if why == retry && now.After(c.until) { // the most urgent caller has left
		c.gap = min(2*c.gap, mostGap)
	}
	c.paused, c.sendAt = false, now.Add(c.gap)
	c.hedgeAt = now.Add(c.delay.get())
	if why == retry {
		c.isLate()
	}
	return c.publish(now, why, false)
}

// hedge looks at a request that is late, and sends it again if it may.
func (c *call) hedge(now time.Time) error {
	c.hedgeAt = now.Add(c.delay.get())
	if !c.x.hedging {
		c.hedgeAt = c.sendAt
		return nil
	}
	c.isLate()
	if c.unhedged || c.hedges >= mostHedges {
		c.hedgeAt = c.sendAt
		return c.x.lines[c.over].away() // then the answers are lost
	}
	return c.publish(now, hedge, c.hedges == 0 && c.over != int(c.x.first.Load()))
}

func (c *call) isLate() {
	if c.late != nil {
		c.late()
		c.late = nil
	}
}

// publish sends the request over the line whose turn it is.
func (c *call) publish(now time.Time, why kind, free bool) error {
	over := c.x.line(c.over)
	if err := c.x.lines[over].away(); err != nil {
		return err
	}
	token, ok := c.x.expect(waiting{call: c, at: now, line: over}, why, free)
	if !ok {
		return nil
	}
	if len(c.sent) >= mostOpen {
		c.x.drop(c.sent[1])
		c.sent = append(c.sent[:1], c.sent[2:]...)
	}
	if c.sent = append(c.sent, token); len(c.sent) == 1 {
		c.began = over
	}
	if c.over = over; why == hedge {
		c.hedges++
	}
	return c.x.lines[over].publish(c.subject, c.body, token)
}

// wait waits for an answer, or until it is time to do something.
func (c *call) wait(ctx context.Context, now time.Time) (a arrival, came bool, _ time.Time) {
	next := c.sendAt
	if c.hedgeAt.Before(next) {
		next = c.hedgeAt
	}
	if !c.deadline.IsZero() && c.deadline.Before(next) {
		next = c.deadline
	}
	c.timer.Reset(next.Sub(now))
	select {
	case a = <-c.answers:
		came = true
	case <-c.timer.C:
	case <-ctx.Done():
	}
	return a, came, time.Now()
}

// look returns the error that an answer carries.
func (c *call) look(a arrival, now time.Time) error {
	if noResponders(a.msg) {
		return wire.NoResponders(c.subject)
	}
	err := ReplyError(a.msg)
	if err == nil {
		c.delay.observe(a.at.Sub(c.x.begin), now.Sub(c.x.begin))
		c.x.answered(a.line, c.began)
	}
	return err
}

// noResponders reports whether the NATS server itself answered that nobody answers this subject.
func noResponders(msg *nats.Msg) bool {
	return len(msg.Data) == 0 && msg.Header.Get("Status") == "503"
}

// refused makes the next request go out after a pause. What was sent before may still be answered.
func (c *call) refused(err error, now time.Time) {
	c.note(err)
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, Overloaded) || errors.Is(err, QuotaExceeded) {
		c.x.calm(now.Add(c.delay.get()))
	}
	if c.paused {
		return
	}
	wait := firstPause
	if !errors.Is(err, nats.ErrConnectionReconnecting) { // to look at the connection costs nothing
		wait, c.pause = c.pause, min(2*c.pause, lastPause)
	}
	if e, ok := errors.AsType[*Error](err); ok {
		// At most a second: another generator may be able to answer sooner.
		wait = max(wait, min(e.RetryAfter, lastPause))
	}
	c.paused = true
	c.sendAt = now.Add(wait + rand.N(wait/2)) // callers that were refused together must not return together
	c.hedgeAt = c.sendAt
}

// outOfQuota reports whether the tag's quota is used up until the call is over, or the most urgent of its callers has
// left.
func (c *call) outOfQuota(err error, now time.Time) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Reason != QuotaExceeded {
		return false
	}
	return e.RetryAfter == 0 || !c.until.IsZero() && !now.Add(e.RetryAfter).Before(c.until)
}

// note keeps why there are no IDs. A timeout says less than the error before it.
func (c *call) note(err error) {
	if c.why != nil && timedOut(err) {
		return
	}
	c.why = err
	if c.failed != nil {
		c.failed.Store(&err)
	}
}

// gaveUp returns the error of a call whose time is over.
func (c *call) gaveUp(ctx context.Context) error {
	switch {
	case c.why != nil:
	case len(c.sent) > 0:
		c.note(wire.Silent(c.subject))
	case c.failed != nil && c.failed.Load() != nil: // the call before this one, for more IDs, used up the time
		c.why = *c.failed.Load()
	}
	err := c.x.gaveUp(ctx, cmp.Or(c.why, c.x.lines[0].away(), ctx.Err(), context.DeadlineExceeded))
	// It was the client's timeout, or the context is about to end.
	if ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w (%w)", err, context.DeadlineExceeded)
	}
	return err
}

// gaveUp returns the error of a caller that the context ended: it matches the context's error, and says why there were
// no IDs in time. NATS does not answer a request that the user may not make. It reports that to the connection. So the
// error of a request without an answer has what the connection reported last.
func (x *exchange) gaveUp(ctx context.Context, why error) error {
	if timedOut(why) {
		for _, line := range x.lines {
			if last := line.lastError(); last != nil {
				why = fmt.Errorf("%w; the last error of the connection: %w", why, last)
			}
		}
	}
	return wire.GaveUp(ctx, why)
}

// end releases what a call used.
func (c *call) end() {
	c.timer.Stop()
	x := c.x
	x.forget(c)
	for len(c.answers) > 0 { // they came after the one that counts
		<-c.answers
	}
	*c = call{answers: c.answers, timer: c.timer, sent: c.sent[:0]}
	x.calls.Put(c)
}
