package bus

import "time"

// If an answer is late, its request is sent again, and the first answer counts ("The Tail at
// Scale", Dean and Barroso, 2013). The repeated request is a hedge. An answer is late if it takes
// longer than 999 of 1,000 answers before it.
const (
	leastDelay = 10 * time.Millisecond
	// firstDelay is the delay before there are answers: the first one may have to wait until the
	// generator has read the tag. Each of the next fewAnswers makes it shorter by its fewDown-th
	// part.
	firstDelay = 100 * time.Millisecond
	fewAnswers = 100
	fewDown    = 32
	// delayUp and delayDown are divisors: an answer that was late makes the delay longer by its
	// delayUp-th part, and all others make it shorter by their delayDown-th part. One late answer
	// in 1,000 keeps it where it is.
	delayUp   = 4
	delayDown = 4480
	// An answer that takes longer than silence comes from a generator that was frozen or cut off.
	// It says nothing of how long answers take. So often a request goes over a connection that
	// hangs, to see whether it still does.
	silence = time.Second

	// mostHedges is how many hedges a call has.
	mostHedges = 8
	// A hedge of a request that is answered too costs a token. A call gives a hundredth of one.
	// Calls save up to mostTokens, and hedges that many calls send together may owe up to mostDebt.
	tokensForHedge = 100
	mostTokens     = 8 * tokensForHedge
	mostDebt       = 100 * tokensForHedge
	// Hedges of requests that stay silent cost none. In a second there is at most one for each
	// hedgedCalls calls, and freeHedges.
	hedgedCalls = 2
	freeHedges  = 100
)

// budget bounds the hedges of a client, and knows when an answer is late. The lock of the exchange
// guards it.
type budget struct {
	delay   time.Duration // 999 of 1,000 answers come sooner
	answers int           // up to fewAnswers
	raised  time.Time     // when the delay became longer

	tokens int       // in parts of a call
	quiet  time.Time // no hedges until then: generators are overloaded, or none is there

	second        time.Time // when the present one began
	calls, before int       // in it, and in the one before it
	hedges        int       // in it
}

// observe notes an answer to a request. Requests that wait at the same time are late for the same
// reason. So they raise the delay once.
func (b *budget) observe(sent, now time.Time) {
	took, down := now.Sub(sent), time.Duration(delayDown)
	if b.answers < fewAnswers {
		b.answers++
		down = fewDown
	}
	switch {
	case took <= b.delay:
		b.delay = max(b.delay-b.delay/down, leastDelay)
	case took < silence && !sent.Before(b.raised):
		b.delay += b.delay / delayUp
		b.raised = now
	}
}

// called notes a call.
func (b *budget) called(now time.Time) {
	b.turn(now)
	b.calls++
	b.tokens = min(b.tokens+1, mostTokens)
}

// hedge reports whether a hedge may be sent, and counts it.
func (b *budget) hedge(now time.Time) bool {
	b.turn(now)
	if b.tokens <= 0 || now.Before(b.quiet) || b.hedges >= (b.calls+b.before)/hedgedCalls+freeHedges {
		return false
	}
	b.hedges++
	return true
}

// pay takes the cost of hedges that were not needed.
func (b *budget) pay(hedges int) { b.tokens = max(b.tokens-hedges*tokensForHedge, -mostDebt) }

// turn begins another second if the present one is over.
func (b *budget) turn(now time.Time) {
	passed := now.Sub(b.second)
	if passed < time.Second {
		return
	}
	b.before = 0
	if passed < 2*time.Second {
		b.before = b.calls
	}
	b.calls, b.hedges, b.second = 0, 0, now
}
