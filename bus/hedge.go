package bus

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// If an answer is late, its request is sent again, and the first answer counts ("The Tail at Scale", Dean and Barroso,
// 2013). The repeated request is a hedge. An answer is late if it takes longer than 999 of 1,000 answers before it.
const (
	// leastHedgeDelay is after how long a request is late at the earliest. hedgePause is the time between two hedges.
	leastHedgeDelay = 10 * time.Millisecond
	hedgePause      = 10 * time.Millisecond
	// Before the first answer nothing is late: it may have to wait until the generator has read the tag. Then the delay is
	// firstDelay, and each of the next fewAnswers makes it shorter by its fewDown-th part.
	firstDelay = 100 * time.Millisecond
	fewAnswers = 100
	fewDown    = 32
	mostHedges = 8 // for a request
	// hedgeCost is how many requests pay for one hedge. Requests without hedges save at most savedHedges hedges for later.
	hedgeCost   = 128
	savedHedges = 8
	// If no call was answered since mostUnheard hedges, the first of them more than leastHedgeDelay ago, no generator
	// is heard. More hedges would only add load, and use up the credit.
	mostUnheard = mostHedges
	// An answer that takes longer than silence comes from a generator that was frozen or cut off.
	silence = time.Second
	// delayUp and delayDown are divisors: an answer that was late makes the delay longer by its delayUp-th part, and all
	// others make it shorter by their delayDown-th part. One late answer in 1,000 keeps it where it is.
	delayUp   = 4
	delayDown = 4480
)

// hedging decides when requests are sent again, and counts that.
type hedging struct {
	off     bool
	credit  atomic.Int64 // each request adds 1, and each hedge that counts takes hedgeCost. Below 1: no hedges now
	begin   time.Time    // of the client
	unheard atomic.Int64 // hedges since the last answer to any call
	first   atomic.Int64 // when the first of these was sent, in ns since begin
	delays  [64]lateness // subjects whose hashes are equal share one
	seed    maphash.Seed

	requests, retries, hedges atomic.Int64
}

func newHedging() *hedging {
	h := &hedging{seed: maphash.MakeSeed(), begin: time.Now()}
	h.credit.Store(hedgeCost)
	return h
}

// lateness is after how long requests are late.
type lateness struct {
	delay   atomic.Int64 // in ns; 0: there was no answer yet
	answers atomic.Int64 // up to fewAnswers
}

// lateness returns that of requests for n IDs on a subject. Large batches have one of their own.
func (h *hedging) lateness(subject string, n int64) *lateness {
	i := maphash.String(h.seed, subject)
	if n > fewIDs {
		i++
	}
	return &h.delays[i%uint64(len(h.delays))]
}

// began notes the first request of a call.
func (h *hedging) began() {
	h.requests.Add(1)
	if h.credit.Load() < savedHedges*hedgeCost {
		h.credit.Add(1)
	}
}

// may reports whether a request that is late may be sent again.
func (h *hedging) may(now time.Time) bool { return !h.off && h.credit.Load() > 0 && !h.deaf(now) }

// deaf reports whether no generator is heard.
func (h *hedging) deaf(now time.Time) bool {
	return h.unheard.Load() >= mostUnheard && now.Sub(h.begin)-time.Duration(h.first.Load()) > leastHedgeDelay
}

// sent notes a hedge.
func (h *hedging) sent(now time.Time) {
	h.hedges.Add(1)
	if h.unheard.Add(1) == 1 {
		h.first.Store(int64(now.Sub(h.begin)))
	}
}

// heard notes an answer to any call.
func (h *hedging) heard() {
	if h.unheard.Load() != 0 {
		h.unheard.Store(0)
	}
}

// pay takes the cost of hedges that were not needed, or that brought nothing, from the credit.
func (h *hedging) pay(hedges int) { h.credit.Add(-int64(hedges) * hedgeCost) }

// observe notes how long an answer took.
func (l *lateness) observe(took time.Duration) {
	d, down := l.delay.Load(), int64(delayDown)
	if l.answers.Load() < fewAnswers {
		l.answers.Add(1)
		down = fewDown
	}
	switch {
	case d == 0:
		l.delay.Store(int64(firstDelay))
	case int64(took) > d:
		l.delay.Store(d + d/delayUp)
	case d > int64(leastHedgeDelay):
		l.delay.Store(max(d-d/down, int64(leastHedgeDelay)))
	}
}

// Stats counts the requests of a [Client] for IDs since it was made.
type Stats struct {
	Requests int64 // calls that sent a request. Calls of Next that share one count once
	Hedges   int64 // requests that were sent again because the answer was late; see [NoHedging]
	Retries  int64 // requests that were sent again after a refusal, or after a fifth of the time that was left
}

// Stats returns what the client sent so far.
func (c *Client) Stats() Stats {
	h := c.hedging
	return Stats{Requests: h.requests.Load(), Hedges: h.hedges.Load(), Retries: h.retries.Load()}
}
