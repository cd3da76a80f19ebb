package allocator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// View is what a generator holds of one tag in memory, for people to look at.
type View struct {
	Tag      string
	Step     int64         // IDs to be reserved next, as adapted
	Segments []SegmentView // the current one first
	Left     int64         // IDs in memory
	Taken    int64         // IDs handed out since the tag was first used
	Waiting  int           // requests
	Rate     float64       // IDs a second, over the last segments
	Refilled time.Time     // zero: never
	State    string        // ok, loading, failing, regressed or exhausted
	Error    string        // with failing and regressed
}

// SegmentView is a segment and the position in it.
type SegmentView struct {
	Range
	Next int64 // the next ID to be handed out
}

// Views returns, in the order of names, up to limit buffers whose tags start
// with prefix and come after the tag after.
func (a *Allocator) Views(prefix, after string, limit int) []View {
	a.mu.RLock()
	var found []*buffer
	for tag, b := range a.buffers {
		if strings.HasPrefix(tag, prefix) && tag > after {
			found = append(found, b)
		}
	}
	a.mu.RUnlock()
	slices.SortFunc(found, func(x, y *buffer) int { return strings.Compare(x.tag, y.tag) })
	if len(found) > limit {
		found = found[:limit]
	}
	return views(found)
}

// Busiest returns the up to limit buffers from which most IDs were taken.
func (a *Allocator) Busiest(limit int) []View {
	all := a.all()
	taken := make(map[*buffer]int64, len(all))
	for _, b := range all {
		b.mu.Lock()
		taken[b] = b.taken
		b.mu.Unlock()
	}
	slices.SortFunc(all, func(x, y *buffer) int {
		if d := taken[y] - taken[x]; d != 0 {
			return int(max(min(d, 1), -1))
		}
		return strings.Compare(x.tag, y.tag)
	})
	return views(all[:min(limit, len(all))])
}

func views(buffers []*buffer) []View {
	now := time.Now()
	found := make([]View, 0, len(buffers))
	for _, b := range buffers {
		found = append(found, b.view(now))
	}
	return found
}

func (b *buffer) view(now time.Time) View {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := View{
		Tag: b.tag, Step: b.stepper.step, Left: b.left, Taken: b.taken,
		Waiting: b.waiters.n, Refilled: b.refilled, State: "ok",
	}
	for _, s := range b.segments {
		v.Segments = append(v.Segments, SegmentView{s.Range, s.next})
	}
	since := b.refilledBefore
	if since.IsZero() {
		since = b.refilled
	}
	if d := now.Sub(since); !since.IsZero() && d > 0 {
		v.Rate = float64(b.taken-b.takenBefore) / d.Seconds()
	}
	switch {
	case b.regressed != nil:
		v.State, v.Error = "regressed", b.regressed.Error()
	case b.failure != nil:
		v.State, v.Error = "failing", b.failure.err.Error()
	case b.exhausted:
		v.State = "exhausted"
	case b.loading:
		v.State = "loading"
	}
	return v
}

// Tags is how many tags are in memory.
func (a *Allocator) Tags() int {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return len(a.buffers)
}

// Waiting is how many requests wait for a segment.
func (a *Allocator) Waiting() int64 { return a.waiting.Load() }

// Failing is how many tags fail to be refilled, how many of those have
// nothing left in memory because the store fails, and why the first of these by name
// does. A record that is damaged is its tag's own trouble.
func (a *Allocator) Failing() (failing, dry int, why error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	first := ""
	for b := range a.failing {
		b.mu.Lock()
		if b.left == 0 && b.failure != nil && !errors.Is(b.failure.err, ErrDamaged) {
			if dry++; dry == 1 || b.tag < first {
				first, why = b.tag, fmt.Errorf("%s has no IDs left: %w", b.tag, b.failure.err)
			}
		}
		b.mu.Unlock()
	}
	return len(a.failing), dry, why
}
