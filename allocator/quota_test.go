package allocator_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// withQuota returns an allocator that has IDs of "order" in memory and knows its quota, all of which it may use now.
func withQuota(t *testing.T, perSecond, burst int64, sharers int) (*store, *allocator.Allocator) {
	t.Helper()
	s := newStore(t, 1000)
	a := start(t, allocator.Config{Store: s})
	take(t, a, 1)
	a.Share(sharers)
	s.change(allocator.Change{RulesChange: allocator.RulesChange{Quota: &allocator.Quota{PerSecond: perSecond, Burst: burst}}})
	synctest.Wait()
	return s, a
}

// overQuota takes n IDs, which must be refused, and returns when to ask again.
func overQuota(t *testing.T, a *allocator.Allocator, n int64) time.Duration {
	t.Helper()
	_, err := a.Take(t.Context(), "order", n)
	over, ok := errors.AsType[*allocator.QuotaError](err)
	if !ok || !errors.Is(err, allocator.ErrQuota) || over.RetryAfter <= 0 {
		t.Fatalf("Take(%d): %v, want a QuotaError with a hint", n, err)
	}
	return over.RetryAfter
}

// TestQuota: of the quota a generator has its share, of which the burst comes at once. To ask again when the error says so succeeds, and
// not sooner.
func TestQuota(t *testing.T) {
	for name, c := range map[string]struct {
		perSecond, burst int64
		sharers          int
		atOnce, n        int64 // IDs of the burst, and of the request after it
		after            time.Duration
	}{
		"alone":                          {100, 50, 1, 50, 1, 10 * time.Millisecond},
		"a request of the whole burst":   {100, 50, 1, 50, 50, 500 * time.Millisecond},
		"four share":                     {100, 40, 4, 10, 1, 40 * time.Millisecond},
		"three share, which is no whole": {100, 30, 3, 10, 1, 30 * time.Millisecond},
		"seven share":                    {1000, 70, 7, 10, 3, 21 * time.Millisecond},
		"slow":                           {1, 1, 1, 1, 1, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				_, a := withQuota(t, c.perSecond, c.burst, c.sharers)
				take(t, a, c.atOnce)
				for range 50 {
					after := overQuota(t, a, c.n)
					if after != c.after {
						t.Fatalf("ask again after %v, want %v", after, c.after)
					}
					time.Sleep(after - time.Millisecond)
					if left := overQuota(t, a, c.n); left != time.Millisecond {
						t.Fatalf("a millisecond before: ask again after %v", left)
					}
					time.Sleep(time.Millisecond)
					take(t, a, c.n)
				}
				time.Sleep(time.Hour) // the burst is all that it saves
				take(t, a, c.atOnce)
				overQuota(t, a, 1)
			})
		})
	}
}

// TestQuotaLargeRequest: a request that is larger than a generator's share comes when the share is full, and those after it wait for what
// it took. One that is larger than the burst can never come.
func TestQuotaLargeRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, a := withQuota(t, 100, 100, 4)
		take(t, a, 90) // the share is 25
		if after := overQuota(t, a, 1); after != (65+1)*40*time.Millisecond {
			t.Errorf("after a request that was too large for the share: ask again after %v", after)
		}
		refused(t, a, 101, allocator.ErrBatchTooLarge, 0)
		begin := time.Now()
		for range 10 {
			time.Sleep(overQuota(t, a, 90))
			take(t, a, 90)
		}
		if got, want := time.Since(begin), 10*90*40*time.Millisecond; got < want || got > want+time.Second {
			t.Errorf("900 IDs came within %v, want %v", got, want)
		}
	})
}

// TestQuotaShares: shares follow the number of generators, and a change of the quota.
func TestQuotaShares(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, a := withQuota(t, 100, 100, 1)
		a.Share(10)
		take(t, a, 10)
		if after := overQuota(t, a, 1); after != 100*time.Millisecond {
			t.Errorf("ten share: ask again after %v", after)
		}
		a.Share(2)
		if after := overQuota(t, a, 1); after != 20*time.Millisecond {
			t.Errorf("two share: ask again after %v", after)
		}
		a.Share(0)
		if after := overQuota(t, a, 1); after != 10*time.Millisecond {
			t.Errorf("nobody is heard: ask again after %v", after)
		}
		s.rule(`{"quota":{"per_second":1000}}`)
		synctest.Wait()
		if after := overQuota(t, a, 1); after != time.Millisecond {
			t.Errorf("the quota is ten times as much: ask again after %v", after)
		}
		s.rule(`{"quota":{"per_second":0}}`)
		synctest.Wait()
		take(t, a, 500)
		s.rule(`{"quota":{"per_second":5}}`)
		synctest.Wait()
		take(t, a, 5) // a new quota is full, whatever was taken without one
		overQuota(t, a, 1)
	})
}

// TestQuotaAtFirstLoad: the requests that wait when a quota becomes known count. Those for which it has too few IDs are refused, and do
// not keep the tag from others.
func TestQuotaAtFirstLoad(t *testing.T) {
	for _, order := range []allocator.Order{allocator.Trend, allocator.Strict} {
		bubble(t, func(t *testing.T) {
			s := newStore(t, 1000)
			if order == allocator.Strict {
				s = newStrict(t, 1)
			}
			s.rule(`{"quota":{"per_second":10}}`)
			gate := s.gated()
			a := start(t, allocator.Config{Store: unwatched{s}})
			large, five, four, late := request(t, a, 1_000_000), request(t, a, 5), request(t, a, 4), request(t, a, 2)
			pass(t, gate)
			if order == allocator.Strict { // the first claim was for the large request
				pass(t, gate)
			}
			large.refused(t, allocator.ErrBatchTooLarge)
			for _, r := range []*reply{five, four} {
				if <-r.done; r.err != nil {
					t.Errorf("%v order: a request within the quota: %v", order, r.err)
				}
			}
			late.refused(t, allocator.ErrQuota)
			s.back()
			if after := overQuota(t, a, 2); after != 100*time.Millisecond {
				t.Errorf("%v order: ask again after %v", order, after)
			}
			take(t, a, 1)
			overQuota(t, a, 1)
		})
	}
}

// TestQuotaCountsOnlyIDs: a request that waits in vain takes nothing from the quota.
func TestQuotaCountsOnlyIDs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, a := withQuota(t, 1, 20_000, 1)
		s.away()
		for left(a) > 0 {
			take(t, a, left(a))
		}
		for range 5 {
			_, _ = a.Take(t.Context(), "order", 15_000)
		}
		s.back()
		time.Sleep(10 * time.Second)
		take(t, a, 17_000) // of the 20,000, of which about 3,000 were taken
	})
}

// TestQuotaOfBorrowedIDs: IDs of a strict tag that another generator had are taken from this one's share, once. Those of any other tag are
// not, because the other generator has taken them from its own.
func TestQuotaOfBorrowedIDs(t *testing.T) {
	for _, order := range []allocator.Order{allocator.Trend, allocator.Strict} {
		bubble(t, func(t *testing.T) {
			s := newStore(t, 1000)
			if order == allocator.Strict {
				s = newStrict(t, 1)
			}
			a := start(t, allocator.Config{Store: s})
			take(t, a, 1)
			s.rule(`{"quota":{"per_second":1,"burst":20000}}`)
			synctest.Wait()
			s.away()
			for left(a) > 0 {
				take(t, a, left(a))
			}
			_, w, err := a.Request(nil, "order", 4000)
			if err != nil || !w.Withdraw() {
				t.Fatalf("%v order: a request does not wait: %v", order, err)
			}
			a.Borrowed("order", 3000)
			s.back()
			time.Sleep(10 * time.Second)
			if order == allocator.Strict {
				take(t, a, 12_900) // of the 20,000
				overQuota(t, a, 200)
			} else {
				take(t, a, 17_900) // about 2,000 were in memory
			}
		})
	}
}
