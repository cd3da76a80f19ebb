package bus

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leafbus/leafbus/bus/idspace"
)

// checkStill checks what holds whenever all goroutines wait.
func (w *poolWorld) checkStill() {
	p := w.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	w.mu.Lock()
	var last *poolFetch
	if len(w.fetches) > 0 {
		last = w.fetches[len(w.fetches)-1]
	}
	w.mu.Unlock()
	left, coming, waiting := p.left, int64(0), w.calling.Load()
	if p.filling != nil {
		coming = last.n
	}
	switch {
	case p.end != nil:
	case p.distance < p.least || p.distance > p.most:
		w.fail("the distance is %d, not within %d to %d", p.distance, p.least, p.most)
	case idspace.Total(p.ids) != left:
		w.fail("it thinks that it keeps %d IDs, and keeps %d", left, idspace.Total(p.ids))
	case left+coming > p.most:
		w.fail("it keeps %d IDs and has asked for %d, and may keep %d", left, coming, p.most)
	case left != w.fetched.Load()-w.handed.Load():
		w.fail("%d IDs were fetched and %d handed out, and it has %d", w.fetched.Load(), w.handed.Load(), left)
	case waiting > 0 && p.filling == nil:
		w.fail("%d callers wait for nothing", waiting)
	case waiting > 0 && left > 0:
		w.fail("%d callers wait while there are %d IDs", waiting, left)
	case p.filling == nil && last != nil && last.err == nil && left <= p.distance/2:
		w.fail("it has %d IDs of %d and does not fetch more", left, p.distance)
	}
}

// checkClosed checks what is after Close.
func (w *poolWorld) checkClosed() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, ctx := range []context.Context{context.Background(), ended} {
		at := w.now()
		if id, err := w.pool.Next(ctx); !errors.Is(err, ErrPoolClosed) || w.now() != at {
			w.fail("after Close: Next: %d, %v", id, err)
		}
	}
	if again := w.pool.Close(); len(again) > 0 {
		w.fail("Close again: %v", again)
	}
}

// checkIDs checks that each ID that was fetched went one way.
func (w *poolWorld) checkIDs(unused []Range) {
	type fetchedRange struct {
		Range
		seen int64
	}
	var ranges []fetchedRange // in increasing order
	for _, f := range w.fetches {
		for _, r := range f.ranges {
			ranges = append(ranges, fetchedRange{r, 0})
		}
	}
	find := func(id int64) *fetchedRange {
		i, found := slices.BinarySearchFunc(ranges, id, func(r fetchedRange, id int64) int {
			switch {
			case r.Last < id:
				return -1
			case r.First > id:
				return 1
			}
			return 0
		})
		if !found {
			return nil
		}
		return &ranges[i]
	}
	seen := make(map[int64]string)
	note := func(id int64, where string) {
		if before := seen[id]; before != "" {
			w.fail("%d: %s, and %s", id, before, where)
		}
		seen[id] = where
		r := find(id)
		if r == nil {
			w.fail("%d: %s, and was not fetched", id, where)
			return
		}
		r.seen++
	}
	for _, c := range w.calls {
		if c.err != nil {
			continue
		}
		note(c.id, "handed out")
	}
	for _, r := range unused {
		if r.Len() < 1 {
			w.fail("Close returned %v", r)
			continue
		}
		for id := range r.All() {
			note(id, "returned by Close")
		}
	}
	for _, r := range ranges {
		if r.seen < r.Len() {
			w.fail("%d of the IDs %v are lost", r.Len()-r.seen, r.Range)
		}
	}
}

// checkCalls checks what callers were told, and when.
func (w *poolWorld) checkCalls() {
	for _, c := range w.calls {
		end := max(c.end, c.began)
		switch {
		case c.ended > end:
			w.fail("a call of %v was answered at %v, its context ended at %v", c.began, c.ended, end)
		case c.ended > max(w.CloseAt, c.began):
			w.fail("a call of %v was answered at %v, Close was at %v", c.began, c.ended, w.CloseAt)
		case c.err == nil:
		case errors.Is(c.err, ErrPoolClosed):
			if c.ended < w.CloseAt {
				w.fail("a call of %v was told at %v that the pool is closed, which it was at %v", c.began, c.ended, w.CloseAt)
			}
		case w.ofFetch(c):
		default:
			w.checkGaveUp(c, end)
		}
		for _, f := range w.fetches {
			if f.began > c.began && f.over && f.ended < c.ended && f.err != nil && !retryable(f.err) {
				w.fail("a call of %v was not told at %v: %w", c.began, f.ended, f.err)
			}
		}
	}
}

// ofFetch reports whether a call's error is that of a fetch that may be told.
func (w *poolWorld) ofFetch(c poolCall) bool {
	for _, f := range w.fetches {
		if f.err == c.err && !retryable(f.err) && !errors.Is(f.err, context.Canceled) && f.began >= c.began && f.ended == c.ended {
			return true
		}
	}
	return false
}

func (w *poolWorld) checkGaveUp(c poolCall, end time.Duration) {
	if c.ended != end {
		w.fail("a call of %v gave up at %v, its context ended at %v: %w", c.began, c.ended, end, c.err)
	}
	of := context.DeadlineExceeded
	if c.patience == poolHasEnded || c.patience == poolCancelled && c.end-c.began != w.Timeout {
		of = context.Canceled
	}
	if !errors.Is(c.err, of) {
		w.fail("a call whose context ended with %w was told: %w", of, c.err)
	}
	var why []error // those of that moment
	for _, r := range w.reasons {
		if r.from < c.ended {
			why = why[:0]
		}
		if r.from <= c.ended {
			why = append(why, r.why)
		}
	}
	if len(why) > 0 && !slices.ContainsFunc(why, func(why error) bool { return why == nil || errors.Is(c.err, why) }) {
		w.fail("a call that gave up was not told why, which is %w, but: %w", errors.Join(why...), c.err)
	}
}

// checkFetches checks how much the pool asked for, and when.
func (w *poolWorld) checkFetches() {
	var last *poolFetch // the last that succeeded
	distance := w.Least
	for i, f := range w.fetches {
		if f.n < 1 || f.n > w.Most || f.began >= w.CloseAt {
			w.fail("%d IDs are asked for at %v; %d may be kept, and Close was at %v", f.n, f.began, w.Most, w.CloseAt)
		}
		if i > 0 {
			if before := w.fetches[i-1]; before.err != nil && f.left > before.leftWhenFailed/2 {
				w.fail("after an attempt failed with %d IDs left there is another with %d", before.leftWhenFailed, f.left)
			} else if before.err == nil && f.left > f.distance/2 {
				w.fail("%d IDs are asked for when there are %d of %d", f.n, f.left, f.distance)
			}
		}
		if f.err != nil {
			continue
		}
		w.checkServed(f)
		after := w.pool.distance
		if i+1 < len(w.fetches) {
			after = w.fetches[i+1].distance
		}
		want := distance
		waited := last != nil && slices.ContainsFunc(w.calls, func(c poolCall) bool {
			return c.began < f.ended && c.ended > last.ended && c.ended > c.began
		})
		long := last != nil && f.began-last.ended >= 10*time.Second
		switch {
		case waited:
			want = min(2*distance, w.Most)
		case long:
			want = max(distance/2, w.Least)
		}
		if after != want {
			w.fail("a fetch from %v to %v, callers waited: %v, half lasted long: %v: the distance was %d and is %d", f.began, f.ended, waited, long, distance, after)
		}
		last, distance = f, after
	}
}

// checkServed checks that what a fetch brought went to those who waited for it.
func (w *poolWorld) checkServed(f *poolFetch) {
	if f.ended >= w.CloseAt { // it may have come too late
		return
	}
	var waited, served int64
	for _, c := range w.calls {
		if c.began == f.ended { // it may have been among those who waited, or not
			return
		}
		if c.began < f.ended && c.ended >= f.ended {
			if c.end == f.ended { // it may have left, or not
				return
			}
			waited++
			if c.ended == f.ended && c.err == nil {
				served++
			}
		}
	}
	if want := min(waited, idspace.Total(f.ranges)); served < want {
		w.fail("%d callers waited when %d IDs came at %v, and %d got one", waited, idspace.Total(f.ranges), f.ended, served)
	}
}
