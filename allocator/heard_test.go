package allocator_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// TestHeardIsBounded: what others report is kept while a request to the store is under way, up to a limit.
func TestHeardIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		a := start(t, allocator.Config{Records: s})
		take(t, a, 1)
		synctest.Wait()
		report := func(times int) {
			for range times {
				heard(a, "order", allocator.Range{First: 1000, Last: 1000})
			}
		}
		want := func(what string, n int) {
			t.Helper()
			if heard := a.Heard("order"); heard != n {
				t.Errorf("%s: %d reports are kept, want %d", what, heard, n)
			}
		}
		report(2000)
		want("without a refill", 0)
		gate := s.gated()
		w := queued(t, a, "order", 100)
		synctest.Wait()
		report(999)
		want("during a refill", 999)
		report(2000)
		want("during a refill", 1000)
		gate <- struct{}{} // the store is moved up to 1001
		time.Sleep(time.Second)
		want("during the next request", 0)
		report(1)
		want("during the next request", 1)
		gate <- struct{}{}
		if _, err := w.Wait(t.Context()); err != nil {
			t.Errorf("Wait: %v", err)
		}
		synctest.Wait()
		report(1)
		want("while the next segment is loaded", 1)
		close(gate)
		synctest.Wait()
		want("after the refill", 0)
	})
}

// TestHeardForEachRequest: reports during a request that failed leave room for those during the next one.
func TestHeardForEachRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		var r events
		a := start(t, allocator.Config{Records: s, Notify: r.notify})
		requests := 0
		second := ids(15, 15)
		s.onReserved(func(string, allocator.Range) error {
			switch requests++; requests {
			case 1: // 1-10
				for range 1000 {
					heard(a, "order", ids(1, 1))
				}
				return allocator.ErrConflict
			case 2: // 11-20
				heard(a, "order", second)
			}
			return nil
		})
		if got := take(t, a, 1); got[0].First != 21 {
			t.Errorf("%v was handed out, and another generator holds %v", got, second)
		}
		if !slices.ContainsFunc(published[allocator.Regressed](&r), func(e allocator.Regressed) bool { return e.InDoubt == second }) {
			t.Errorf("no alert has %v in doubt: %+v", second, r.list)
		}
	})
}
