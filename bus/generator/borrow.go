package generator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/wire"
)

// A generator that lacks the IDs for a request takes them from a peer, and answers the caller
// itself. So each request has one answer: if a message between the generators is lost, the request
// ends in the error that it would have had, and the IDs are a gap.
//
//	service.borrow      asks the peers one after the other
//	├── mayAsk           nobody had so many a moment ago: ask no one
//	├── lenders          the peer that lent this tag last, then others, at most maxLenders
//	├── takeFrom         wait 0: from the memory of the peer, or "no", and whether it can refill
//	└── takeFrom         nobody had them: those that can refill, or did not answer, get borrowWait
//	allocator (strict) ── passOn ── takeFrom
//
// A peer that is asked (lender.heard) never asks another one.

const (
	// borrowWithin is how old a request may be when IDs for it are still asked of others. With the
	// answer it is less than the 2 s that callers usually wait.
	borrowWithin = 1500 * time.Millisecond
	// maxBorrowing bounds the requests of a kind for which others are asked at the same time. Each
	// has a goroutine.
	maxBorrowing = 10_000
	// maxLenders bounds the peers that are asked for one request, and lendWithin the wait for what
	// one has in memory.
	maxLenders = 8
	lendWithin = 100 * time.Millisecond
	// borrowWait bounds the wait for a peer that refills.
	borrowWait = 500 * time.Millisecond
	// askAgain is how long nobody is asked for IDs that nobody had.
	askAgain = 100 * time.Millisecond
	// borrowSlow is how long a request waits at a gate before others are asked.
	borrowSlow = 100 * time.Millisecond
	// A strict tag's requests are passed on to a peer that was heard within heardLately and has not
	// failed to answer within answeredLately.
	heardLately    = 2 * time.Second
	answeredLately = time.Second
	// answerWithin is the least time without an answer that counts: a request may be almost over
	// when it asks.
	answerWithin = 50 * time.Millisecond
	// maxBorrowed bounds the tags of which is known who lent them.
	maxBorrowed = 10_000
)

// takeRequest asks one generator for IDs. They serve requests that were sent to another one. No
// tag: snowflakes.
type takeRequest struct {
	Tag          string `json:"tag,omitempty"`
	Count        int64  `json:"count"`
	WaitMS       int64  `json:"wait_ms"` // how long the generator may refill; 0: only what is in memory counts
	Installation string `json:"installation"`
}

// borrower asks peers for IDs, and remembers what they said. Its methods are safe for concurrent
// use.
type borrower struct {
	*base
	mu     sync.Mutex
	of     map[string]borrowed  // by tag; no tag: snowflakes
	failed map[string]time.Time // when a run did not answer
}

// borrowed is what is known of a tag.
type borrowed struct {
	lender string    // the run that lent IDs last; empty: none did
	lacked int64     // nobody had so many
	until  time.Time // and until then nobody is asked for so many
}

// mayAsk reports whether anybody may have n IDs of a tag now.
func (b *borrower) mayAsk(now time.Time, tag string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := b.of[tag]
	return n < known.lacked || !now.Before(known.until)
}

// lender is the run that lent IDs of a tag last.
func (b *borrower) lender(tag string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of[tag].lender
}

// note notes who lent IDs of a tag, or that nobody has n of them.
func (b *borrower) note(now time.Time, tag, lender string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil || len(b.of) >= maxBorrowed {
		b.of = make(map[string]borrowed)
	}
	is := borrowed{lender: lender}
	if lender == "" {
		is = borrowed{b.of[tag].lender, n, now.Add(askAgain)}
	}
	b.of[tag] = is
}

// hasFailed reports whether a run has just not answered.
func (b *borrower) hasFailed(now time.Time, run string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.failed[run]
	return ok && now.Sub(at) < answeredLately
}

// fail notes that a run did not answer.
func (b *borrower) fail(now time.Time, run string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed == nil {
		b.failed = make(map[string]time.Time)
	}
	maps.DeleteFunc(b.failed, func(_ string, at time.Time) bool { return now.Sub(at) >= answeredLately })
	b.failed[run] = now
}

// lacksIDs reports whether an error says that this generator has no IDs for the request, which
// another one may have.
func lacksIDs(err error) bool {
	return slices.Contains([]bus.Reason{
		bus.StoreUnavailable, bus.Overloaded, bus.TimedOut, bus.Exhausted, bus.Draining,
		bus.ClockBackwards, bus.NoWorkerID,
	}, toError(err).Reason)
}

// mayBorrow reports whether another generator could have n IDs for a request.
func (s *service) mayBorrow(a Answer, n int64) bool {
	now := time.Now()
	return now.Sub(a.begun) < borrowWithin && s.borrowing.Load() <= maxBorrowing && s.borrower.mayAsk(now, a.Tag, n) &&
		s.group.anyPeer(now, time.Time{}, s.offers)
}

// borrow takes n IDs for a request from another generator. It may be called while the request waits
// for those of this one.
func (s *service) borrow(a Answer, n int64) (ranges []bus.Range, ok bool) {
	tag := a.Tag
	// Else each request would put off the next question, and under load nobody would be asked
	// again.
	if !s.mayBorrow(a, n) {
		return nil, false
	}
	s.borrowing.Add(1)
	defer s.borrowing.Add(-1)
	ctx, cancel := context.WithDeadline(context.Background(), a.begun.Add(borrowWithin))
	defer cancel()
	var refilling, late []string
	ask := func(runs []string, wait time.Duration) bool {
		for _, run := range runs {
			if !s.mayBorrow(a, n) {
				break
			}
			var refills bool
			var err error
			if ranges, refills, err = s.borrower.takeFrom(ctx, run, tag, n, wait); err == nil {
				s.borrower.note(time.Now(), tag, run, n)
				if tag != "" { // they are in use, whatever the record says from now on
					s.cfg.Index.Observe(tag, ranges[len(ranges)-1].Last+1)
				}
				return true
			}
			s.cfg.Log.Debug("another generator lends no IDs", "run", run, "tag", tag, "count", n, "error", err)
			if refills {
				refilling = append(refilling, run)
			} else if errors.Is(err, context.DeadlineExceeded) {
				late = append(late, run) // it may be busy, and have the IDs
			}
		}
		return false
	}
	if ask(s.borrower.lenders(tag, s.offers), 0) || ask(append(refilling, late...), borrowWait) {
		return ranges, true
	}
	if ctx.Err() == nil {
		s.borrower.note(time.Now(), tag, "", n)
	}
	return nil, false
}

// lenders are the runs of the peers that can be asked for IDs of a tag, in the order in which they
// are asked. Those that have just not answered come last.
func (b *borrower) lenders(tag string, offers func(heartbeat) bool) (runs []string) {
	now := time.Now()
	if b.membership.installation() == "" { // it cannot know yet which peers have IDs of the same tags
		return nil
	}
	first := b.lender(tag)
	if b.alloc.Order(tag) == allocator.Strict {
		first = cmp.Or(b.alloc.LastRun(tag), first)
	}
	rank := make(map[string]int)
	for _, peer := range b.group.present(now) {
		if !offers(peer) {
			continue
		}
		runs = append(runs, peer.ID)
		switch {
		case b.hasFailed(now, peer.ID):
			rank[peer.ID] = 1
		case peer.ID == first:
			rank[peer.ID] = -1
		}
	}
	rand.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
	slices.SortStableFunc(runs, func(x, y string) int { return rank[x] - rank[y] })
	return runs[:min(len(runs), maxLenders)]
}

// takeFrom takes n IDs from the peer of this run. With a wait the peer may refill. Without, it
// gives what it has in memory, and refills says whether it could.
func (b *borrower) takeFrom(ctx context.Context, run, tag string, n int64, wait time.Duration) (
	ranges []bus.Range, refills bool, err error,
) {
	ctx, cancel := context.WithTimeout(ctx, max(wait, lendWithin))
	defer cancel()
	req := takeRequest{tag, n, 0, b.membership.installation()}
	if end, _ := ctx.Deadline(); wait > 0 {
		req.WaitMS = max(time.Until(end).Milliseconds()*9/10, 1) // so that its refusal is heard
	}
	below := b.alloc.Seen(tag)
	sent := time.Now()
	msg, err := b.cfg.Conn.RequestWithContext(ctx, wire.SubjectTake+"."+run, wire.Encode(req))
	if err != nil {
		if time.Since(sent) >= answerWithin {
			b.fail(time.Now(), run)
		}
		return nil, false, err
	}
	if err := bus.ReplyError(msg); err != nil {
		return nil, msg.Header.Get(wire.HeaderRefills) != "", err
	}
	ranges, err = wire.ParseReply(msg.Data)
	if err != nil {
		return nil, false, err
	}
	// The record of a strict tag that was seen above these IDs went backwards. Of any other tag
	// only the max_id of an operator counts. It may have been set while the IDs were on their way,
	// and this generator has confirmed that it hands out none below.
	if msg.Header.Get(wire.HeaderOrder) == idspace.OrderStrict {
		b.alloc.KnowStrict(tag)
	} else {
		below, _ = b.alloc.Forbids(tag)
	}
	if o := allocator.Order(msg.Header.Get(wire.HeaderOrder)); o.Domain() != "" {
		t := allocator.Tag{Name: tag, Order: o, KeyID: msg.Header.Get(wire.HeaderKey)}
		if err := b.cfg.Keys.Load(ctx, t); err != nil {
			return nil, false, fmt.Errorf("the numbers of an opaque tag cannot be concealed: %w", err)
		}
	}
	_, rules := b.alloc.Forbids(tag) // as with the floor
	left := n
	for _, r := range ranges {
		left -= r.Len()
		if r.First < below || rules.Paused || rules.Left(r.Last) == 0 {
			return nil, false, fmt.Errorf(
				"it handed out %v, and an operator has forbidden that (IDs below %d, rules %+v)", ranges, below, rules)
		}
	}
	if left != 0 {
		return nil, false, fmt.Errorf("it handed out %v, and was asked for %d IDs", ranges, n)
	}
	return ranges, false, nil
}

// passOn asks the generator with this run to claim n IDs of a strict tag; see [allocator.Config].
// One of another installation has other IDs of the same tag, and one that stops would have to stay
// for the requests of others.
func (b *borrower) passOn(ctx context.Context, run, tag string, n int64) (none allocator.Range, err error) {
	now := time.Now()
	if b.hasFailed(now, run) || !b.group.anyPeer(now, now.Add(-heardLately), func(peer heartbeat) bool {
		return peer.ID == run && peer.Segment
	}) {
		return none, errors.New("the generator that claimed last is not heard, or cannot claim IDs")
	}
	ranges, _, err := b.takeFrom(ctx, run, tag, n, borrowWait)
	if err == nil && len(ranges) != 1 {
		err = fmt.Errorf("another generator claimed %v, and was asked for one range", ranges)
	}
	if err != nil {
		return none, err
	}
	return ranges[0], nil
}
