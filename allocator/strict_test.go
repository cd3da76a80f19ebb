package allocator_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// newStrict returns a store whose tag "order" is strict and starts at from.
func newStrict(t *testing.T, from int64) *store {
	s := (&store{MemoryRecords: allocatortest.NewMemoryRecords(), tb: t}).twin()
	tag := strictTag("order")
	tag.MaxID = from
	s.createTag(tag)
	return s
}

func strictTag(name string) allocator.Tag {
	return allocator.Tag{Name: name, MaxID: 1, Order: allocator.Strict}
}

var errLost = errors.New("the answer was lost")

// startStrict starts an allocator that knows the tag, and has taken the IDs 1 to 10 of it.
func startStrict(t *testing.T, cfg allocator.Config) *allocator.Allocator {
	a := start(t, cfg)
	wantRanges(t, "the first IDs", take(t, a, 10), ids(1, 10))
	return a
}

func ids(first, last int64) allocator.Range { return allocator.Range{First: first, Last: last} }

// reply is that of a request which waits.
type reply struct {
	ranges []allocator.Range
	err    error
	done   chan struct{}
	leave  context.CancelFunc
}

// request sends a request for n IDs, and returns when it waits.
func request(t *testing.T, a *allocator.Allocator, n int64) *reply {
	ctx, leave := context.WithCancel(t.Context())
	r := &reply{done: make(chan struct{}), leave: leave}
	go func() {
		defer close(r.done)
		r.ranges, r.err = a.Take(ctx, "order", n)
	}()
	synctest.Wait()
	return r
}

// want waits for the reply.
func (r *reply) want(t *testing.T, want ...allocator.Range) {
	t.Helper()
	<-r.done
	if r.err != nil {
		t.Errorf("error %v, want %v", r.err, want)
		return
	}
	wantRanges(t, "a reply", r.ranges, want...)
}

func (r *reply) refused(t *testing.T, want error) {
	t.Helper()
	if <-r.done; !errors.Is(r.err, want) {
		t.Errorf("%v, error %v; want error %v", r.ranges, r.err, want)
	}
}

// pass lets one write of a gated store go on.
func pass(t *testing.T, gate chan<- struct{}) {
	t.Helper()
	select {
	case gate <- struct{}{}:
	case <-time.After(time.Minute):
		t.Fatal("no write waits")
	}
}

// wantClaims checks how many IDs each write took, beginning with the last ones that were not checked.
func wantClaims(t *testing.T, s *store, after int, want ...int64) {
	t.Helper()
	synctest.Wait()
	var got []int64
	for _, c := range s.reserves()[after:] {
		got = append(got, c.n)
	}
	if len(got) != len(want) {
		t.Errorf("the writes took %v, want %v", got, want)
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("the writes took %v, want %v", got, want)
			return
		}
	}
}

// TestStrictClaims: requests that come while a claim is under way wait for the next one, which takes exactly what they
// need. Each gets one run, and nothing stays in memory.
func TestStrictClaims(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStrict(t, 1)
		var r events
		file := filepath.Join(t.TempDir(), "marks")
		marks, err := allocator.OpenIndex(file)
		if err != nil {
			t.Fatal(err)
		}
		a := startStrict(t, allocator.Config{Records: s, Notify: r.notify, Index: marks,
			Push: func(allocator.Stored) { t.Error("a claim was reported to the other generators") }})
		gate := s.gated()
		first := request(t, a, 1)
		time.Sleep(time.Millisecond)
		second, third := request(t, a, 2), request(t, a, 5)
		wantClaims(t, s, 1, 1)
		pass(t, gate)
		first.want(t, ids(11, 11))
		wantClaims(t, s, 2, 7)
		time.Sleep(2 * time.Millisecond)
		pass(t, gate)
		second.want(t, ids(12, 13))
		third.want(t, ids(14, 18))
		wantClaims(t, s, 3)
		marked, err := os.ReadFile(file) // in memory the watch shows how far the tag is
		if got := left(a); got != 0 || len(marked) != 0 || err != nil || s.maxID() != 19 {
			t.Errorf("%d IDs are in memory, the marks are %q, %v, max_id is %d", got, marked, err, s.maxID())
		}
		claims := published[allocator.Claimed](&r)
		if n := len(claims); n != 3 || len(published[allocator.Refilled](&r)) > 0 {
			t.Fatalf("events: %+v", r.list)
		}
		want := allocator.Claimed{Tag: "order", Range: ids(12, 18), Requests: 2, Elapsed: 2 * time.Millisecond}
		if claims[2] != want {
			t.Errorf("the last claim is %+v, want %+v", claims[2], want)
		}
		v := a.Views(allocator.Query{Limit: 1})[0]
		if v.Order != allocator.Strict || v.Taken != 18 || v.Step != 0 {
			t.Errorf("the view is %+v", v)
		}
	})
}

// TestStrictFirstContact: an allocator that does not know yet that the tag is strict keeps the promise too.
func TestStrictFirstContact(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStrict(t, 1)
		a := start(t, allocator.Config{Records: s})
		gate := s.gated()
		first := request(t, a, 2)
		late := request(t, a, 1)
		first.leave()
		synctest.Wait()
		pass(t, gate)
		synctest.Wait()
		pass(t, gate)
		late.want(t, ids(3, 3))
		wantClaims(t, s, 0, 2, 1)
	})
}

// TestStrictAmbiguous: a claim whose answer was lost serves no request. They go into the next one.
func TestStrictAmbiguous(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStrict(t, 1)
		var r events
		a := startStrict(t, allocator.Config{Records: s, Notify: r.notify})
		s.onReserved(func(string, allocator.Range) error { return errLost })
		first := request(t, a, 5)
		second := request(t, a, 3)
		s.onReserved(nil)
		first.want(t, ids(16, 20))
		second.want(t, ids(21, 23))
		wantClaims(t, s, 1, 5, 8)
		r.wantEpisodes(t, "refill_failed", 1, 1)
	})
}

// TestStrictMaxIDMoved: IDs below a max_id that an operator set while the claim was under way are not handed out.
func TestStrictMaxIDMoved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStrict(t, 1)
		a := startStrict(t, allocator.Config{Records: s})
		s.onReserved(func(string, allocator.Range) error { // done, but the answer is on its way
			s.onReserved(nil)
			a.Push(s.move(1000))
			return nil
		})
		wantRanges(t, "after max_id was moved", take(t, a, 2), ids(1000, 1001))
		wantClaims(t, s, 1, 2, 2)
	})
}

// TestStrictByHand: an operator deletes the record of a tag by hand, and makes a strict tag of that name. A generator
// whose watch does not see the deletion hands out nothing that it has in memory.
func TestStrictByHand(t *testing.T) {
	for name, inFlight := range map[string]bool{"in memory": false, "in flight": true} {
		inBubble(t, name, func(t *testing.T) {
			s := newStore(t, 100)
			a := start(t, allocator.Config{Records: s})
			strict := allocator.Stored{Tag: strictTag("order"), Revision: 1000}
			strict.MaxID = 1000
			remake := func() {
				s.Restore(map[string]allocator.Stored{"order": strict})
				a.Push(strict)
			}
			if inFlight {
				s.onReserved(func(string, allocator.Range) error { s.onReserved(nil); remake(); return nil })
			} else {
				take(t, a, 20) // and the next segment is in memory
				remake()
			}
			wantRanges(t, "the strict tag", take(t, a, 5), ids(1000, 1004))
			if got := left(a); got != 0 {
				t.Errorf("%d IDs are in memory", got)
			}
		})
	}
}

// TestOrderOutlivesTheBuffer: the answer with IDs of a strict tag is sent after the claim, and says the order also if
// the tag has left memory meanwhile. Otherwise a client would take the tag for one of trend order, and keep IDs.
func TestOrderOutlivesTheBuffer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStore(t, 10)
		invoice := s.createTag(strictTag("invoice"))
		a := start(t, allocator.Config{Records: s})
		ranges, err := a.Take(t.Context(), "invoice", 3)
		if err != nil || len(ranges) != 1 || a.Order("invoice") != allocator.Strict {
			t.Fatalf("%v, %v", ranges, err)
		}
		synctest.Wait() // a claim that is under way keeps its tag in memory
		invoice.MaxID, invoice.Deleted = 4, true
		a.Push(invoice)
		if a.Tags() != 0 {
			t.Fatal("the tag is still in memory")
		}
		if got := a.Order("invoice"); got != allocator.Strict {
			t.Errorf("the order is %q", got)
		}
	})
}
