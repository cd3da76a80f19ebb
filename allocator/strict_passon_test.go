package allocator_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// peer is the generator "near", which has changed the record first whenever far wants to.
type peer struct {
	far    *store
	asked  []int64 // how many IDs it was asked for
	err    error
	mu     sync.Mutex
	answer allocator.Range // of its answer; zero: what it claims. Under mu where a request may be under way
	slow   time.Duration
}

// wins lets all claims of far have conflicts from now on.
func (p *peer) wins() {
	p.far.onReserve(func(_ context.Context, tag string, _ int64) error {
		return &allocator.OvertakenError{Tag: tag, Run: "near"}
	})
}

// passOn is [allocator.Config.PassOn].
func (p *peer) passOn(ctx context.Context, node, tag string, n int64) (allocator.Range, error) {
	p.asked = append(p.asked, n)
	if err := sleep(ctx, 1+p.slow); err != nil {
		return allocator.Range{}, err
	}
	if node != "near" || tag != "order" || p.err != nil || len(p.asked) > 1000 {
		return allocator.Range{}, errors.Join(p.err, errors.New("it failed"))
	}
	p.mu.Lock()
	answer := p.answer
	p.mu.Unlock()
	if answer != (allocator.Range{}) {
		return answer, nil
	}
	return p.far.claim(tag, n), nil
}

// answers sets the answer while a request may be under way.
func (p *peer) answers(r allocator.Range) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = r
}

// claimedBy returns who made the claims that were reported.
func claimedBy(r *events) (nodes []string) {
	for _, c := range published[allocator.Claimed](r) {
		nodes = append(nodes, c.PassedTo)
	}
	return nodes
}

// TestPassOn: after two conflicts the requests are passed on to the generator that the record names, and for 5 s later
// ones at once. Then this generator claims IDs again.
func TestPassOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStrict(t, 1)
		var r events
		p := &peer{far: s}
		a := startStrict(t, allocator.Config{Records: s, Notify: r.notify, PassOn: p.passOn})
		p.wins()
		wantRanges(t, "passed on", take(t, a, 3), ids(11, 13))
		wantClaims(t, s, 1, 3, 3)
		if c := published[allocator.Claimed](&r)[1]; c.Conflicts != 2 || c.PassedTo != "near" || c.Range != ids(11, 13) || c.Requests != 1 {
			t.Errorf("the claim is %+v", c)
		}
		begin := time.Now()
		for time.Since(begin) < 5*time.Second-time.Millisecond {
			take(t, a, 1)
			time.Sleep(100 * time.Millisecond)
		}
		wantClaims(t, s, 3)
		s.back()
		time.Sleep(time.Second)
		take(t, a, 1)
		wantClaims(t, s, 3, 1)
		if got := claimedBy(&r); got[len(got)-1] != "" {
			t.Errorf("the claims are by %v", got)
		}
	})
}

// TestPassOnFails: where passing on fails, this generator claims IDs itself, and goes on doing so.
func TestPassOnFails(t *testing.T) {
	for name, fails := range map[string]func(p *peer){
		"an error":               func(p *peer) { p.err = errLost },
		"no answer":              func(p *peer) { p.slow = time.Minute },
		"IDs that were seen":     func(p *peer) { p.answer = ids(10, 10) },
		"IDs below that, sticky": func(p *peer) { p.answer = ids(1, 1) },
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newStrict(t, 1)
			var r events
			p := &peer{far: s}
			a := startStrict(t, allocator.Config{Records: s, Notify: r.notify, PassOn: p.passOn})
			p.wins()
			if name == "IDs below that, sticky" {
				take(t, a, 1) // passed on
			}
			fails(p)
			if len(p.asked) > 0 {
				s.back()
			}
			asked := len(p.asked)
			begin := time.Now()
			waits := request(t, a, 1)
			time.Sleep(time.Microsecond)
			s.back()
			<-waits.done
			if waits.err != nil || waits.ranges[0].First < 11 {
				t.Errorf("%v, %v", waits.ranges, waits.err)
			}
			if took := time.Since(begin); took > 600*time.Millisecond {
				t.Errorf("it took %v", took)
			}
			take(t, a, 1)
			if n := len(p.asked) - asked; n > 1 {
				t.Errorf("it was passed on %d times, want that a failure ends it", n)
			}
			for _, by := range claimedBy(&r)[1+asked:] {
				if by != "" {
					t.Errorf("a claim is by %s", by)
				}
			}
		})
	}
}

// TestPassOnShort: no request gets more than a range has.
func TestPassOnShort(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStrict(t, 1)
		p := &peer{far: s}
		a := startStrict(t, allocator.Config{Records: s, PassOn: p.passOn})
		p.wins()
		take(t, a, 1)
		p.slow = time.Millisecond
		zero := request(t, a, 1)
		one, two := request(t, a, 2), request(t, a, 2)
		p.answers(ids(1000, 1002))
		s.back()
		zero.want(t, ids(1000, 1000))
		p.answers(ids(2000, 2002))
		one.want(t, ids(2000, 2001))
		p.answers(ids(3000, 3009))
		two.want(t, ids(3000, 3001))
	})
}

// TestForPeer: a request of another generator is served as the own ones are, and never passed on. One for a tag that is
// not known to be strict is refused.
func TestForPeer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStrict(t, 1)
		s.create("trend", 1, 10)
		p := &peer{far: s}
		a := startStrict(t, allocator.Config{Records: s, PassOn: p.passOn})
		p.wins()
		take(t, a, 1) // passed on, as what comes in the next 5 s
		s.back()
		time.Sleep(5 * time.Second)
		w, err := a.RequestForPeer("order", 2_000_000) // more than one request may want
		if err != nil {
			t.Fatalf("RequestForPeer: %v", err)
		}
		if ranges, err := w.Wait(t.Context()); err != nil || len(ranges) != 1 || ranges[0] != ids(12, 2_000_011) {
			t.Errorf("a peer got %v, %v", ranges, err)
		}
		if len(p.asked) != 1 {
			t.Errorf("requests were passed on %v times", p.asked)
		}
		if _, err := a.RequestForPeer("order", 0); !errors.Is(err, allocator.ErrBadCount) {
			t.Errorf("no IDs: %v", err)
		}
		if _, err := a.Take(t.Context(), "trend", 1); err != nil {
			t.Errorf("Take: %v", err)
		}
		for _, tag := range []string{"trend", "unknown"} {
			if _, err := a.RequestForPeer(tag, 1); !errors.Is(err, allocator.ErrConflict) {
				t.Errorf("%s: %v", tag, err)
			}
		}
	})
}

// TestPassOnInCircles: two generators that pass on to each other do not wait for each other.
func TestPassOnInCircles(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := newStrict(t, 1)
		names := []string{"one", "two"}
		as := make(map[string]*allocator.Allocator)
		var mu sync.Mutex
		conflicts := make(map[string]int)
		for i, name := range names {
			s := memory.twin()
			other := names[1-i]
			s.onReserve(func(_ context.Context, tag string, _ int64) error {
				mu.Lock()
				defer mu.Unlock()
				if conflicts[name]++; conflicts[name] == 2 || conflicts[name] == 3 {
					return &allocator.OvertakenError{Tag: tag, Run: other}
				}
				return nil
			})
			as[name] = start(t, allocator.Config{Records: s, PassOn: func(ctx context.Context, node, tag string, n int64) (allocator.Range, error) {
				time.Sleep(10 * time.Millisecond)
				w, err := as[node].RequestForPeer(tag, n)
				if err != nil {
					return allocator.Range{}, err
				}
				ranges, err := w.Wait(ctx)
				if err != nil {
					return allocator.Range{}, err
				}
				return ranges[0], nil
			}})
			take(t, as[name], 1)
		}
		begin := time.Now()
		one, two := request(t, as["one"], 1), request(t, as["two"], 1)
		<-one.done
		<-two.done
		if took := time.Since(begin); one.err != nil || two.err != nil || took > 100*time.Millisecond {
			t.Errorf("it took %v: %v, %v", took, one.err, two.err)
		}
	})
}

// TestPassOnAtFirstContact: a generator that always comes too late for the record, and does not know yet that the tag
// is strict, passes its first request on.
func TestPassOnAtFirstContact(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStrict(t, 1)
		p := &peer{far: s}
		p.wins()
		a := start(t, allocator.Config{Records: s, PassOn: p.passOn})
		begin := time.Now()
		wantRanges(t, "passed on", take(t, a, 3), ids(1, 3))
		if took := time.Since(begin); took > 200*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// TestPassedOnOnce: a generator that loses each race passes its own requests on, and refuses those that others have
// passed on to it. Left in its queue they would wait with it until their time was over.
func TestPassedOnOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		s.createTag(strictTag("invoice"))
		next := int64(1000)
		passed := func(_ context.Context, node, tag string, n int64) (allocator.Range, error) {
			if node != "winner" || tag != "invoice" {
				t.Errorf("requests for %s were passed on to %q", tag, node)
			}
			next += n
			return allocator.Range{First: next - n, Last: next - 1}, sleep(t.Context(), 100*time.Millisecond)
		}
		a := start(t, allocator.Config{Records: s, PassOn: passed})
		if _, err := a.Take(t.Context(), "invoice", 1); err != nil { // now it is known as strict
			t.Fatal(err)
		}
		s.onReserve(func(context.Context, string, int64) error {
			return &allocator.OvertakenError{Tag: "invoice", Run: "winner"}
		})
		ofPeer, err := a.RequestForPeer("invoice", 5)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		own := make(chan error, 1)
		go func() { _, err := a.Take(t.Context(), "invoice", 2); own <- err }()
		if ranges, err := ofPeer.Wait(t.Context()); !errors.Is(err, allocator.ErrConflict) || time.Since(begin) > 100*time.Millisecond {
			t.Errorf("the request of another generator ended after %v: %v, %v", time.Since(begin), ranges, err)
		}
		synctest.Wait() // the own one was passed on, and waits
		if _, err := a.RequestForPeer("invoice", 5); !errors.Is(err, allocator.ErrConflict) {
			t.Errorf("a request came while this generator passes on its own: %v", err)
		}
		if err := <-own; err != nil || next != 1002 {
			t.Errorf("the own request: %v; the winner claimed up to %d", err, next)
		}
		if _, err := a.RequestForPeer("invoice", 5); !errors.Is(err, allocator.ErrConflict) {
			t.Errorf("a request came while the next ones are passed on at once: %v", err)
		}
		if left, refills := a.Has("invoice"); left > 0 || refills {
			t.Errorf("it offers %d, %v, and would refuse what it is asked for", left, refills)
		}
	})
}
