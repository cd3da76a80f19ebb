package bus

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// If an answer is late, its request is sent again, and the first answer counts ("The Tail at Scale", Dean and Barroso,
// 2013). The repeated request is a hedge. An answer is late if it takes longer than 999 of 1,000 answers before it.
const (
	leastDelay = 10 * time.Millisecond
	// firstDelay is the delay before there are answers: the first one may have to wait until the generator has read the
	// tag. Each of the next fewAnswers makes it shorter by its fewDown-th part.
	firstDelay = 100 * time.Millisecond
	fewAnswers = 100
	fewDown    = 32
	// delayUp and delayDown are divisors: an answer that was late makes the delay longer by its delayUp-th part, and all
	// others make it shorter by their delayDown-th part. One late answer in 1,000 keeps it where it is.
	delayUp   = 4
	delayDown = 4480
	// An answer that takes longer than silence comes from a generator that was frozen or cut off. It says nothing of how
	// long answers take.
	silence = time.Second
	// mostSilent calls in a row without an answer over the first connection make the other one the first.
	mostSilent = 3

	// mostHedges is how many hedges a call has.
	mostHedges = 8
	// A hedge of a request that is answered too costs a token. A call gives a hundredth of one. Calls save up to
	// mostTokens, and hedges that many calls send together may owe up to mostDebt.
	tokensForHedge = 100
	mostTokens     = 8 * tokensForHedge
	mostDebt       = 100 * tokensForHedge
	// Hedges of requests that stay silent cost none. In a second there is at most one for each hedgedCalls calls, and
	// freeHedges.
	hedgedCalls = 2
	freeHedges  = 100
)

// delays is after how long requests are late. Subjects whose hashes are equal share a delay.
type delays struct {
	of   [64]delay
	seed maphash.Seed
}

// delay of requests for n IDs on a subject. Large batches have one of their own.
func (d *delays) delay(subject string, n int64) *delay {
	i := maphash.String(d.seed, subject)
	if n > fewIDs {
		i++
	}
	return &d.of[i%uint64(len(d.of))]
}

// delay is an estimate of the time in which 999 of 1,000 answers come. Concurrent observations may lose one another,
// which does no harm.
type delay struct {
	ns      atomic.Int64 // 0: there was no answer yet
	answers atomic.Int64 // up to fewAnswers
	raised  atomic.Int64 // when it became longer, in ns since the client began
}

func (d *delay) get() time.Duration {
	if ns := d.ns.Load(); ns > 0 {
		return time.Duration(ns)
	}
	return firstDelay
}

// observe notes an answer to a request that was sent at a time since the client began. Requests that wait at the same
// time are late for the same reason. So they raise the delay once.
func (d *delay) observe(sent, now time.Duration) {
	took, ns, down := int64(now-sent), d.ns.Load(), int64(delayDown)
	if d.answers.Load() < fewAnswers {
		d.answers.Add(1)
		down = fewDown
	}
	switch {
	case ns == 0:
		d.ns.Store(int64(firstDelay))
	case took > ns:
		if int64(sent) >= d.raised.Load() && took < int64(silence) {
			d.ns.Store(ns + ns/delayUp)
			d.raised.Store(int64(now))
		}
	case ns > int64(leastDelay):
		d.ns.Store(max(ns-ns/down, int64(leastDelay)))
	}
}

// budget bounds the hedges of a client. Its owner is the exchange, which guards it.
type budget struct {
	tokens int           // in parts of a call
	quiet  time.Duration // no hedges until then: generators are overloaded, or none is there

	second        time.Duration // the present one
	calls, before int           // in it, and in the one before it
	hedges        int           // in it
}

// called notes a call.
func (b *budget) called(now time.Duration) {
	b.turn(now)
	b.calls++
	b.tokens = min(b.tokens+1, mostTokens)
}

// hedge reports whether a hedge may be sent, and counts it.
func (b *budget) hedge(now time.Duration) bool {
	b.turn(now)
	if b.tokens <= 0 || now < b.quiet || b.hedges >= (b.calls+b.before)/hedgedCalls+freeHedges {
		return false
	}
	b.hedges++
	return true
}

// pay takes the cost of hedges that were not needed.
func (b *budget) pay(hedges int) { b.tokens = max(b.tokens-hedges*tokensForHedge, -mostDebt) }

// turn goes on to the second of now.
func (b *budget) turn(now time.Duration) {
	second := now.Truncate(time.Second)
	if second <= b.second {
		return
	}
	b.before = 0
	if second-b.second == time.Second {
		b.before = b.calls
	}
	b.calls, b.hedges, b.second = 0, 0, second
}
