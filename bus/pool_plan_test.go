package bus

import (
	"time"

	"pgregory.net/rapid"

	"github.com/leafbus/leafbus/internal/wire"
)

// poolPlan is what happens around a pool.
type poolPlan struct {
	Least, Most int64
	Timeout     time.Duration
	Answers     []poolAnswer // in turn, then again from the first
	Outages     []poolOutage
	Callers     []poolCaller
	CloseAt     time.Duration // 0: when all have what they want
}

// poolAnswer is what generators do with a request.
type poolAnswer struct {
	Delay time.Duration
	Does  poolDeed
	Parts int64 // how many ranges they answer
	Share int64 // what they give, in percent of what was asked for
	Late  bool  // they answer also in the moment in which nobody waits any more
	Apart bool  // no ID is next to another one, as those of opaque tags
}

type poolDeed int

// What generators do.
const (
	poolGives poolDeed = iota
	poolUnavailable
	poolNoResponders
	poolDeadline
	poolUnknownTag
)

// poolOutage is a time without generators.
type poolOutage struct{ From, To time.Duration }

// poolCaller comes in bursts.
type poolCaller struct {
	Start, Pause  time.Duration
	Rounds, Burst int
	Patience      poolPatience
	After         time.Duration // until its context ends
}

type poolPatience int

// How the context of a caller ends.
const (
	poolNever poolPatience = iota
	poolDeadlined
	poolCancelled
	poolHasEnded // before the call
)

func drawPoolPlan(t *rapid.T) poolPlan {
	between := func(name string, from, to time.Duration) time.Duration {
		return time.Duration(rapid.Int64Range(int64(from/time.Microsecond), int64(to/time.Microsecond)).Draw(t, name)) * time.Microsecond
	}
	some := func(name string, from, most int) int { return rapid.IntRange(from, most).Draw(t, name) }
	pick := func(name string, of ...int) int { return rapid.SampledFrom(of).Draw(t, name) }
	wait := func(name string) time.Duration {
		switch pick(name, 0, 1, 1, 2, 3) {
		case 0:
			return between("µs", time.Microsecond, time.Millisecond)
		case 1:
			return between("ms", time.Millisecond, 100*time.Millisecond)
		case 2:
			return between("s", 100*time.Millisecond, 2*time.Second)
		}
		return between("10 s", 2*time.Second, 10*time.Second)
	}

	p := poolPlan{
		Least:   int64(pick("least", 1, 2, 10, 100)),
		Timeout: rapid.SampledFrom([]time.Duration{wire.DefaultTimeout, 50 * time.Millisecond, 0}).Draw(t, "timeout"),
	}
	p.Most = p.Least * int64(pick("most", 1, 2, 7, 50))
	if p.Timeout > 0 {
		p.Timeout += 100 // see above
	}
	for range some("answers", 1, 12) {
		a := poolAnswer{
			Delay: wait("delay"),
			Does:  poolDeed(pick("does", 0, 0, 0, 0, 0, 1, 2, 3, 4)),
			Parts: int64(some("parts", 1, 4)),
			Share: int64(pick("share", 100, 100, 100, 50, 1)),
			Late:  rapid.Bool().Draw(t, "late"),
			Apart: pick("apart", 0, 0, 1) == 1,
		}
		if a.Does != poolGives && a.Does != poolUnknownTag {
			a.Delay += 100 * time.Millisecond // the client has tried again and again
		}
		p.Answers = append(p.Answers, a)
	}
	for range some("callers", 1, 50) {
		c := poolCaller{
			Start: between("start", 0, 20*time.Second), Pause: wait("pause"), Rounds: some("rounds", 1, 10), Burst: some("burst", 1, 12),
			Patience: poolPatience(pick("patience", 0, 0, 1, 2, 3)), After: wait("after") + 100,
		}
		if pick("idle", 0, 0, 0, 1) == 1 {
			c.Pause += 30 * time.Second
		}
		p.Callers = append(p.Callers, c)
	}
	end := p.end()
	for range some("outages", 0, 3) {
		from := between("from", 0, end)
		p.Outages = append(p.Outages, poolOutage{from, from + wait("length")*time.Duration(pick("times", 1, 1, 20))})
	}
	if rapid.Bool().Draw(t, "close early") {
		p.CloseAt = between("close", 0, end) + 250
	}
	return p
}

// end is when callers would have what they want if they never waited.
func (p poolPlan) end() (end time.Duration) {
	for _, c := range p.Callers {
		end = max(end, c.Start+time.Duration(c.Rounds)*c.Pause)
	}
	return end
}
