package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/wire"
)

const (
	// A request is sent again after this part of the time that its most urgent caller has, but not
	// sooner than leastGap, and not later than mostGap.
	gapPart  = 5
	leastGap = 20 * time.Millisecond
	mostGap  = 4 * time.Second
	// Pauses after a refusal, if the answer has no hint of its own.
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
	// mostAnswers is how many answers can wait until a call has looked at them. More are dropped,
	// as if they were lost.
	mostAnswers = 4
)

// request is what a call asks for, and how.
type request struct {
	subject string
	body    []byte
	count   int64     // of IDs; 0: it is for something else
	until   time.Time // the most urgent caller leaves. The context ends when all have; zero: it is the caller's own

	failed *atomic.Pointer[error] // gets the error of each attempt, unless the one before it says more; may be nil
	late   func()                 // is called once if the answer is late; may be nil
}

// call is the one loop of all requests:
//
//	exchange.ask
//	  ├ send      the first request, and then after each gap or pause: it always goes out
//	  ├ hedge     while the answer is late: it goes out if the budget allows it
//	  ├ wait      for an answer to any of them, or until it is time to send
//	  └ refusal   IDs: done. A refusal that may pass: a pause. Another error: done
type call struct {
	request
	x       *exchange
	answers chan *nats.Msg
	timer   *time.Timer

	deadline time.Time // of its context, or else of the client; zero: none

	sendAt  time.Time // the next request goes out
	hedgeAt time.Time // the next hedge may
	gap     time.Duration
	pause   time.Duration // after the next refusal
	paused  bool          // since a refusal, until sendAt
	why     error         // the last attempt failed

	hedges int

	// The lock of the exchange guards these:
	token    uint64 // 0: nothing was sent
	budget   *budget
	sent     []sending
	owed     int  // hedges that cost something if the first request is answered, too
	answered bool // the first request was
}

// sending is a request that was sent.
type sending struct {
	at   time.Time
	line int
}

func newCall() any {
	return &call{answers: make(chan *nats.Msg, mostAnswers), timer: time.NewTimer(time.Hour)}
}

// ask sends a request, and again where that may help, until the context is done. timeout bounds a
// call whose context has no deadline. It returns the first answer with what was asked for, or the
// error that an answer carries.
func (x *exchange) ask(ctx context.Context, timeout time.Duration, r request) (*nats.Msg, error) {
	now := time.Now()
	c := x.calls.Get().(*call)
	c.request, c.x, c.budget = r, x, &x.small
	if c.count > fewIDs {
		c.budget = &x.large
	}
	c.start(ctx, timeout, now)
	defer x.end(c)
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
			var msg *nats.Msg
			if msg, now = c.wait(ctx, now); msg == nil {
				continue
			}
			if err = refusal(c.subject, msg); err == nil {
				return msg, nil
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
	var bounded bool
	if c.deadline, bounded = ctx.Deadline(); !bounded && timeout > 0 {
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
	if len(c.sent) > 0 {
		if c.why == nil {
			c.note(wire.Silent(c.subject))
		}
		if now.After(c.until) { // the most urgent caller has left
			c.gap = min(2*c.gap, mostGap)
		}
		c.isLate()
	}
	c.paused, c.sendAt = false, now.Add(c.gap)
	return c.publish(now, false)
}

// hedge looks at a request that is late, and sends it again if it may.
func (c *call) hedge(now time.Time) error {
	if !c.x.hedging || c.hedges >= mostHedges {
		c.hedgeAt = c.sendAt
		return nil
	}
	c.isLate()
	return c.publish(now, true)
}

func (c *call) isLate() {
	if c.late != nil {
		c.late()
		c.late = nil
	}
}

// publish sends the request over the line whose turn it is, unless it is a hedge and there are too
// many.
func (c *call) publish(now time.Time, hedge bool) error {
	var away [2]error
	for i, line := range c.x.lines {
		away[i] = line.away()
	}
	if err := away[0]; err != nil && (len(c.x.lines) == 1 || away[1] != nil) {
		return err
	}
	if !c.x.expect(c, now, away, hedge) {
		return nil
	}
	number := len(c.sent) - 1
	return c.x.lines[c.sent[number].line].publish(c.subject, c.body, c.token, number)
}

// wait waits for an answer, or until it is time to do something.
func (c *call) wait(ctx context.Context, now time.Time) (msg *nats.Msg, _ time.Time) {
	next := c.sendAt
	if c.hedgeAt.Before(next) {
		next = c.hedgeAt
	}
	if !c.deadline.IsZero() && c.deadline.Before(next) {
		next = c.deadline
	}
	c.timer.Reset(next.Sub(now))
	select {
	case msg = <-c.answers:
	case <-c.timer.C:
	case <-ctx.Done():
	}
	return msg, time.Now()
}

// refusal returns the error that an answer carries.
func refusal(subject string, msg *nats.Msg) error {
	if len(msg.Data) == 0 && msg.Header.Get("Status") == "503" { // the NATS server itself says so
		return wire.NoResponders(subject)
	}
	return ReplyError(msg)
}

// refused makes the next request go out after a pause. What was sent before may still be answered.
func (c *call) refused(err error, now time.Time) {
	c.note(err)
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, Overloaded) || errors.Is(err, QuotaExceeded) {
		c.x.calm(c, now)
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

// outOfQuota reports whether the tag's quota is used up until the call is over, or the most urgent
// of its callers has left.
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

// gaveUp returns the error of a caller that the context ended: it matches the context's error, and
// says why there were no IDs in time. NATS does not answer a request that the user may not make. It
// reports that to the connection. So the error of a request without an answer has what the
// connection reported last.
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
