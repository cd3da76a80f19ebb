package allocator_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/testkit"
)

// reports keeps what allocators report to each other, until it is delivered.
type reports struct {
	mu     sync.Mutex
	queued []report
	all    []report
}

type report struct {
	by int
	r  allocator.Range
}

func (q *reports) from(by int) func(allocator.Stored) {
	return func(s allocator.Stored) {
		r := ids(s.Last.First, s.Last.Last)
		q.mu.Lock()
		defer q.mu.Unlock()
		q.queued = append(q.queued, report{by, r})
		q.all = append(q.all, report{by, r})
	}
}

// times is how often a range was reported by one allocator.
func (q *reports) times(by int, r allocator.Range) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(q.all), func(p report) bool { return p != report{by, r} }))
}

// TestOverlap: one ID that both hold is enough, none is not. What else is in memory stays.
func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		heard   allocator.Range
		left    int64           // of 11-100 and 101-200
		doubt   allocator.Range // zero: nothing is dropped
		reports string
	}{
		{allocator.Range{First: 201, Last: 300}, 190, allocator.Range{}, ""},
		{allocator.Range{First: 200, Last: 300}, 90, allocator.Range{First: 200, Last: 200}, "101-200"},
		{allocator.Range{First: 101, Last: 101}, 90, allocator.Range{First: 101, Last: 101}, "101-200"},
		{allocator.Range{First: 120, Last: 130}, 90, allocator.Range{First: 120, Last: 130}, "101-200"},
		{allocator.Range{First: 100, Last: 100}, 100, allocator.Range{First: 100, Last: 100}, "1-100"},
		{allocator.Range{First: 1, Last: 1}, 100, allocator.Range{First: 1, Last: 1}, "1-100"}, // handed out already
		{allocator.Range{First: 1, Last: 150}, 0, allocator.Range{First: 101, Last: 150}, "1-100 101-200"},
		{allocator.Range{First: 1, Last: 50}, 100, allocator.Range{First: 1, Last: 50}, "1-100"},
	} {
		inBubble(t, c.heard.String(), func(t *testing.T) {
			var q reports
			var r events
			s := newStore(t, 100)
			a := start(t, allocator.Config{Records: s, Notify: r.notify, Push: q.from(0)})
			take(t, a, 10)
			gate := s.gated() // so that nothing is loaded instead yet
			q.all = nil
			heard(a, "order", c.heard)
			heard(a, "other", c.heard) // of a tag that is not in memory
			if n := left(a); n != c.left {
				t.Errorf("%d IDs are in memory, want %d", n, c.left)
			}
			if err := a.CheckTroubles(); err != nil {
				t.Error(err)
			}
			for _, tag := range []string{"order", "other"} {
				if seen := a.Seen(tag); seen < c.heard.Last+1 {
					t.Errorf("Seen(%s) = %d", tag, seen)
				}
			}
			got := published[allocator.Regressed](&r)
			if c.doubt == (allocator.Range{}) {
				if len(got) > 0 || len(q.all) > 0 {
					t.Errorf("the alerts are %+v, and %v was reported", got, q.all)
				}
				return
			}
			if len(got) == 0 {
				t.Fatal("there was no alert")
			}
			if last := got[len(got)-1]; last.InDoubt != c.doubt || last.Action != allocator.Dropped {
				t.Errorf("the alerts are %+v, want %v in doubt", got, c.doubt)
			}
			var reported []string
			for _, report := range q.all {
				reported = append(reported, report.r.String())
			}
			if strings.Join(reported, " ") != c.reports || len(got) != len(reported) {
				t.Errorf("%v was reported by %d alerts, want %s", reported, len(got), c.reports)
			}
			close(gate)
			time.Sleep(time.Second)
			if c.left < 100 && left(a) <= c.left { // the next segment was due
				t.Error("nothing is loaded instead")
			}
		})
	}
}

// TestOverlapWhilePending: a report of the range that a refill is about to take into memory discards it.
func TestOverlapWhilePending(t *testing.T) {
	for name, ahead := range map[string]bool{"on demand": false, "ahead": true} {
		inBubble(t, name, func(t *testing.T) {
			s := newStore(t, 10)
			var r events
			var a *allocator.Allocator
			var reported []string
			cfg := allocator.Config{Records: s, Notify: r.notify, LoadAhead: ahead, Log: testkit.Quiet, Push: func(own allocator.Stored) {
				reported = append(reported, ids(own.Last.First, own.Last.Last).String())
				if len(reported) == 1 {
					heard(a, own.Name, allocator.Range{First: 5, Last: 8})
				}
			}}
			if ahead {
				s.write("order", func(old allocator.Stored) (allocator.Tag, error) { // used, for all that the record says
					old.Last = allocator.Claim{First: 1, Last: 1, Time: time.Now()}
					return old.Tag, nil
				})
			}
			a = newAllocator(cfg)
			t.Cleanup(run(a))
			synctest.Wait()
			if ahead && left(a) != 0 {
				t.Errorf("%d IDs are in memory", left(a))
			}
			wantRanges(t, "Take", take(t, a, 1), allocator.Range{First: 11, Last: 11})
			if got := strings.Join(reported, " "); !strings.HasPrefix(got, "1-10 11-20") {
				t.Errorf("%s was reported", got)
			}
			for _, e := range published[allocator.Refilled](&r) {
				if e.First < 11 {
					t.Errorf("the range %v counts as served", e.Range)
				}
			}
			r.wantEpisodes(t, "regressed", 1, 1)
			r.wantEpisodes(t, "refill_failed", 0, 0)
			if e := published[allocator.Regressed](&r)[0]; e.InDoubt != (allocator.Range{First: 5, Last: 8}) {
				t.Errorf("the alert is %+v", e)
			}
		})
	}
}

// TestOverlapWhileAsked: if the store returns a range that another generator reported after the request was
// sent, the range is dropped. The other one may have used all of it, and cannot drop its own.
func TestOverlapWhileAsked(t *testing.T) {
	for name, c := range map[string]struct {
		heard  allocator.Range
		first  int64 // ID that is served
		doubts int   // alerts
	}{
		"the same range": {allocator.Range{First: 1, Last: 10}, 11, 1},
		"one ID of it":   {allocator.Range{First: 10, Last: 10}, 11, 1},
		"the next range": {allocator.Range{First: 11, Last: 20}, 1, 0},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newStore(t, 10)
			var r events
			a := start(t, allocator.Config{Records: s, Notify: r.notify})
			answer := make(chan struct{})
			s.onReserved(func(string, allocator.Range) error { <-answer; return nil })
			w := queued(t, a, "order", 1)
			synctest.Wait()
			heard(a, "order", c.heard)
			close(answer)
			ranges, err := w.Wait(t.Context())
			if err != nil || ranges[0].First != c.first {
				t.Errorf("Wait: %v, %v; want %d", ranges, err, c.first)
			}
			synctest.Wait()
			doubts := 0
			for _, e := range published[allocator.Regressed](&r) {
				if e.Action == allocator.Dropped && e.InDoubt == c.heard {
					doubts++
				}
			}
			if doubts != c.doubts {
				t.Errorf("%d alerts, want %d: %+v", doubts, c.doubts, r.list)
			}
			r.wantEpisodes(t, "refill_failed", 0, 0)
		})
	}
}

// TestOverlapInOrder: a range is marked, then reported to the other generators, then an event, and only
// then in memory.
func TestOverlapInOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "marks")
	bubble(t, func(t *testing.T) {
		marks, err := allocator.OpenIndex(path)
		if err != nil {
			t.Fatal(err)
		}
		defer marks.Close()
		var r events
		var a *allocator.Allocator
		reported := make(map[allocator.Range]bool)
		cfg := allocator.Config{Records: newStore(t, 10), Index: marks}
		cfg.Push = func(s allocator.Stored) {
			tag, own := s.Name, ids(s.Last.First, s.Last.Last)
			file, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(file), fmt.Sprintf(" %s %d\n", tag, own.Last+1)) {
				t.Errorf("%v is reported, and the file of the marks is %q, %v", own, file, err)
			}
			for _, e := range published[allocator.Refilled](&r) {
				if e.Range == own {
					t.Errorf("the event of %v came before the report", own)
				}
			}
			for _, v := range a.Views(allocator.Query{Limit: 1}) {
				for _, segment := range v.Segments {
					if segment.Range == own {
						t.Errorf("%v is in memory before it is reported", own)
					}
				}
			}
			reported[own] = true
		}
		cfg.Notify = func(e allocator.Event) {
			if e, ok := e.(allocator.Refilled); ok && !reported[e.Range] {
				t.Errorf("the event of %v comes before the report", e.Range)
			}
			r.notify(e)
		}
		cfg.Log = testkit.Quiet
		a = newAllocator(cfg)
		t.Cleanup(run(a))
		for range 50 {
			take(t, a, 1)
		}
		if len(reported) < 3 {
			t.Errorf("%d ranges were reported", len(reported))
		}
	})
}

// TestOverlapOfAUsedRange: a generator that has handed out all of a range hears that another one reserved the
// same. The other one cannot know, so it is informed.
func TestOverlapOfAUsedRange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 100)
		var q reports
		var r events
		a := start(t, allocator.Config{Records: s, Notify: r.notify, Push: q.from(0)})
		for range 15 { // all of 1-100
			take(t, a, 10)
		}
		synctest.Wait()
		mine := allocator.Range{First: 1, Last: 100}
		before := q.times(0, mine)
		heard(a, "order", allocator.Range{First: 1001, Last: 1100}) // the other one's own
		for range 2 {                                               // the second time nothing is new
			heard(a, "order", allocator.Range{First: 51, Last: 60})
		}
		if n := q.times(0, mine) - before; n != 1 {
			t.Errorf("it reported its range %d times, want once", n)
		}
		want := []allocator.Regressed{{Tag: "order", Got: 51, Seen: 101, Action: allocator.Dropped, InDoubt: allocator.Range{First: 51, Last: 60}}}
		if got := published[allocator.Regressed](&r); !slices.Equal(got, want) {
			t.Errorf("the alerts are %+v, want %+v", got, want)
		}
		if ids := take(t, a, 10); ids[0].First != 151 {
			t.Errorf("after that it handed out %v; what is left of the next range is its own", ids)
		}
	})
}

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
