package allocator

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strings"
	"time"
)

// View shows people what a generator holds of one tag in memory.
type View struct {
	Tag      string
	Step     int64     // IDs to reserve next, as adapted
	Segments []Segment // the current one first
	Left     int64     // IDs in memory
	Taken    int64     // IDs handed out since the tag was loaded
	Waiting  int       // requests
	Rate     float64   // IDs a second, over the last segments
	Lasts    float64   // seconds until memory is empty at that rate, if nothing is reserved; infinite: nothing is taken
	Refilled time.Time // zero: never
	State    string    // one of the states below
	Error    string    // with failing
	Rules    Rules     // as this generator knows them
	Order    Order
}

// The states of a tag. Of several that hold, the first of paused, failing,
// exhausted and loading counts.
const (
	StateOK        = "ok"
	StatePaused    = "paused"    // an operator has paused it
	StateLoading   = "loading"   // a refill is under way; never of a strict tag, which is written for each request
	StateFailing   = "failing"   // the last refill failed
	StateExhausted = "exhausted" // the store has no IDs left
)

// Views returns the tags in memory that match a query, in the order of names. A large limit makes
// it slow.
func (m *memory) Views(q Query) []View {
	var first []*buffer
	for _, b := range m.all() {
		if q.Match(b.tag) {
			first = insert(first, b, q.Limit, func(x, y *buffer) int { return strings.Compare(x.tag, y.tag) })
		}
	}
	return views(first)
}

// insert adds x to a sorted list that has at most limit entries.
func insert[T any](list []T, x T, limit int, compare func(x, y T) int) []T {
	if at, _ := slices.BinarySearchFunc(list, x, compare); at < limit {
		return slices.Insert(list[:min(len(list), limit-1)], at, x)
	}
	return list
}

// Named returns those of the named tags that are in memory.
func (m *memory) Named(tags []string) []View {
	var found []*buffer
	for _, tag := range tags {
		if b := m.shard(tag).get(tag); b != nil {
			found = append(found, b)
		}
	}
	return views(found)
}

// Busiest returns the tags in memory from which most IDs a second are taken, at most limit. Of
// equals, those with most IDs taken, then those with the first names. A large limit makes it slow.
func (m *memory) Busiest(limit int) []View {
	type use struct {
		*buffer
		rate  float64
		taken int64
	}
	now := time.Now()
	var top []use
	for _, b := range m.all() {
		b.mu.Lock()
		u := use{b, b.rateLocked(now), b.taken}
		b.mu.Unlock()
		top = insert(top, u, limit, func(x, y use) int {
			return cmp.Or(cmp.Compare(y.rate, x.rate), cmp.Compare(y.taken, x.taken), strings.Compare(x.tag, y.tag))
		})
	}
	busiest := make([]*buffer, len(top))
	for i, u := range top {
		busiest[i] = u.buffer
	}
	return views(busiest)
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
		Tag: b.tag, Step: b.stepper.step, Left: b.leftLocked(), Taken: b.taken,
		Waiting: b.waiters.Len(), Refilled: b.refilled, Rate: b.rateLocked(now), Segments: slices.Clone(b.segments),
		Lasts: b.lastsLocked(now), Rules: b.rulesLocked(),
	}
	if b.strict != nil {
		v.Order, v.Step = Strict, 0
	}
	var err error
	if v.State, err = b.stateLocked(); err != nil {
		v.Error = err.Error()
	}
	return v
}

// rateLocked is how many IDs a second were taken, over the last segments.
func (b *buffer) rateLocked(now time.Time) float64 {
	since := b.refilledBefore
	if since.IsZero() {
		since = b.refilled
	}
	if d := now.Sub(since); !since.IsZero() && d > 0 {
		return float64(b.taken-b.takenBefore) / d.Seconds()
	}
	return 0
}

// lastsLocked is how many seconds the IDs in memory last at the present rate.
func (b *buffer) lastsLocked(now time.Time) float64 {
	if rate := b.rateLocked(now); rate > 0 {
		return float64(b.leftLocked()) / rate
	}
	return math.Inf(1)
}

// stateLocked is the state of the tag, with the reason if it is failing.
func (b *buffer) stateLocked() (state string, why error) {
	switch {
	case b.rulesLocked().Paused:
		return StatePaused, nil
	case b.failure != nil:
		return StateFailing, b.failure.err
	case b.exhausted:
		return StateExhausted, nil
	case b.wake != nil && b.strict == nil:
		return StateLoading, nil
	}
	return StateOK, nil
}

// Totals sums up all tags in memory.
type Totals struct {
	Left   int64          // IDs in memory
	States map[string]int // how many tags are in each state; has all five
	// Lasts is after how many seconds the first tag whose refills fail runs out of IDs, at its
	// present rate; infinite if no IDs are taken.
	Lasts float64
	// Ending are the failing tags that run out of IDs first, in this order.
	Ending []TagEnd
}

// TagEnd says when a tag that gets no new IDs ends.
type TagEnd struct {
	Tag  string
	Left int64   // IDs in memory
	Rate float64 // IDs a second, over the last segments
}

// Lasts is after how many seconds the tag runs out of IDs at its present rate; infinite if no IDs
// are taken.
func (e TagEnd) Lasts() float64 {
	switch {
	case e.Left == 0:
		return 0
	case e.Rate > 0:
		return float64(e.Left) / e.Rate
	}
	return math.Inf(1)
}

func (e TagEnd) compare(other TagEnd) int {
	return cmp.Or(cmp.Compare(e.Lasts(), other.Lasts()), cmp.Compare(other.Rate, e.Rate),
		strings.Compare(e.Tag, other.Tag))
}

// Totals visits every tag in memory. It lists at most ending tags that end.
func (m *memory) Totals(ending int) Totals {
	now := time.Now()
	t := Totals{
		States: map[string]int{StateOK: 0, StatePaused: 0, StateLoading: 0, StateFailing: 0, StateExhausted: 0},
		Lasts:  math.Inf(1),
	}
	for _, b := range m.all() {
		b.mu.Lock()
		state, _ := b.stateLocked()
		t.States[state]++
		t.Left += b.leftLocked()
		if b.failure != nil && !errors.Is(b.failure.err, ErrDamaged) {
			t.Lasts = min(t.Lasts, b.lastsLocked(now))
		}
		if state == StateFailing {
			t.Ending = insert(t.Ending, TagEnd{b.tag, b.leftLocked(), b.rateLocked(now)}, ending, TagEnd.compare)
		}
		b.mu.Unlock()
	}
	return t
}

// Waiting is how many requests wait for a segment.
func (a *Allocator) Waiting() int64 { return a.waiting.Load() }

// Query asks for a page of a list that is in the order of names. Names are compared byte by byte:
// they are case-sensitive, and there are no wildcards. A text that no tag can have finds none.
type Query struct {
	Prefix   string // names begin with it
	Contains string // names have it anywhere, also in the prefix
	After    string // names come after it
	Limit    int    // the most entries; at least 1
}

// Match reports whether a list without a limit has the name.
func (q Query) Match(name string) bool {
	return name > q.After && strings.HasPrefix(name, q.Prefix) && strings.Contains(name, q.Contains)
}
