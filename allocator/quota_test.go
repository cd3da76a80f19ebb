package allocator_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus/idspace"
)

// withQuota returns an allocator that has IDs of "order" in memory and knows its quota, all of which it may use now.
func withQuota(t *testing.T, perSecond, burst int64, sharers int) (*store, *allocator.Allocator) {
	t.Helper()
	s := newStore(t, 1000)
	a := start(t, allocator.Config{Records: s})
	take(t, a, 1)
	a.Share(sharers)
	s.change(allocator.Change{RulesChange: idspace.RulesChange{Quota: &idspace.Quota{PerSecond: perSecond, Burst: burst}}})
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

// TestQuota: of the quota a generator has its share, of which the burst comes at once. To ask again when the error says
// so succeeds, and not sooner.
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
		inBubble(t, name, func(t *testing.T) {
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
	}
}

// TestQuotaLargeRequest: a request that is larger than a generator's share comes when the share is full, and those
// after it wait for what it took. One that is larger than the burst can never come.
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
