package allocator

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// A generator that stops hands its unused IDs over to others, so that they are no gap. Each range
// goes to one generator, once, after it has left memory: if the message is lost, it is a gap.
//
//	the one that stops, after Run has returned    Unused → Yield → (the other: Accept)
//
// Nothing of a strict tag is in memory, so nothing is handed over.

// mostSegments bounds the segments of a tag in memory with those that were handed over: two of its
// own, and those of the generators that stop one after the other. The rest is a gap.
const mostSegments = 8

// Given is a range that a generator hands over. Its JSON is that of messages between generators.
type Given struct {
	First int64  `json:"first,string"`
	Last  int64  `json:"last,string"`
	Run   string `json:"run"` // of the generator that claimed it
}

// Gift is what a generator hands over of one tag.
type Gift struct {
	Tag    string  `json:"tag"`
	Ranges []Given `json:"ranges"`
}

// Unused returns the tags of which IDs are in memory. Those with most of them come first.
func (m *memory) Unused() []string {
	type has struct {
		tag  string
		left int64
	}
	var all []has
	for _, b := range m.all() {
		b.mu.Lock()
		if b.leftLocked() > 0 && b.strict == nil {
			all = append(all, has{b.tag, b.leftLocked()})
		}
		b.mu.Unlock()
	}
	slices.SortFunc(all, func(x, y has) int { return cmp.Compare(y.left, x.left) })
	tags := make([]string, len(all))
	for i, h := range all {
		tags[i] = h.tag
	}
	return tags
}

// handover takes IDs out of memory for another generator, and into it. It remembers nothing.
type handover struct{ *follower }

// Yield takes the unused IDs of these tags out of memory, for another generator. Call it after
// [Allocator.Run] has returned, because a refill could bring more.
func (a *handover) Yield(tags []string) (gifts []Gift) {
	for _, tag := range tags {
		b := a.lockedBuffer(tag)
		if b == nil {
			continue
		}
		gift := Gift{Tag: tag}
		for _, s := range b.segments {
			gift.Ranges = append(gift.Ranges, Given{s.Next, s.Last, cmp.Or(s.Run, a.cfg.Run)})
		}
		if len(gift.Ranges) > 0 && b.strict == nil {
			gifts = append(gifts, gift)
			b.segments = nil
			a.recountLocked(b)
		}
		b.mu.Unlock()
	}
	return gifts
}

// rooms makes room for IDs of these tags, by tag. It reads the records of those that are not in
// memory.
func (a *handover) rooms(ctx context.Context, tags []string) map[string]*buffer {
	of, buffers := make(map[string]*buffer), make([]*buffer, len(tags))
	each(len(tags), maxLoads, func(i int) { buffers[i] = a.room(ctx, tags[i]) })
	for i, b := range buffers {
		if b != nil {
			of[tags[i]] = b
		}
	}
	return of
}

// room returns the buffer of a tag that has room for more segments; nil: there is none.
func (a *handover) room(ctx context.Context, tag string) *buffer {
	b, err := a.lockedOrNew(tag)
	if err != nil {
		return nil
	}
	known := b.stepper.base > 0
	b.mu.Unlock()
	if !known || a.cfg.Index.Order(tag) != Trend {
		s, err := a.claims.load(ctx, tag)
		if err == nil && s.Order.Domain() != "" {
			err = a.cfg.Keys.Load(ctx, s.Tag)
		}
		if err == nil && s.present() == nil {
			a.reconcile(Update{Stored: s}, true) // an older record than was heard of makes nothing known
		}
	}
	b.mu.Lock()
	known = b.stepper.base > 0
	hasRoom := known && !b.gone && b.strict == nil && len(b.segments) < mostSegments
	b.mu.Unlock()
	if !known {
		a.forget(b)
	}
	if !hasRoom {
		return nil
	}
	return b
}

// Accept takes what another generator hands over into memory, and returns how many IDs that are,
// and the tags for which there is room: no other generator may get their IDs. They have left the
// memory of the other one, so what an operator changed meanwhile is in force here. First the IDs
// are in use for good: in the marks. Then they are compared with what is in memory, and with what
// operators have set.
func (a *handover) Accept(ctx context.Context, gifts []Gift) (n int64, taken []string) {
	tags := make([]string, len(gifts))
	for i, g := range gifts {
		tags[i] = g.Tag
	}
	of := a.rooms(ctx, tags)
	gifts = slices.DeleteFunc(gifts, func(g Gift) bool { return of[g.Tag] == nil })
	for i, g := range gifts {
		gifts[i].Ranges = slices.DeleteFunc(g.Ranges, func(g Given) bool {
			return g.First < 1 || g.Last < g.First || g.Last == math.MaxInt64 || g.Run == "" || g.Run == a.cfg.Run
		})
		for _, given := range gifts[i].Ranges {
			a.cfg.Index.Observe(g.Tag, given.Last+1)
		}
	}
	if err := a.cfg.Index.flush(); err != nil {
		a.cfg.Log.Warn("the marks of IDs that another generator hands over cannot be written", "error", err)
	}
	for _, g := range gifts {
		ranges := slices.DeleteFunc(g.Ranges, func(given Given) bool { return a.overlap(g.Tag, given.ids(), given.Run) })
		n += a.accept(of[g.Tag], ranges)
		taken = append(taken, g.Tag)
	}
	return n, taken
}

// accept takes ranges into memory, as many as there is room for. The oldest IDs are handed out
// first.
func (a *handover) accept(b *buffer, ranges []Given) (n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || b.strict != nil || a.ctx.Err() != nil { // it may hand over its own IDs by now
		return 0
	}
	n = -b.leftLocked()
	for _, g := range ranges {
		here := slices.ContainsFunc(b.segments, func(s Segment) bool { return s.Overlaps(g.ids()) })
		if here || b.spent.Overlaps(g.ids()) || len(b.segments) >= mostSegments {
			continue
		}
		b.segments = append(b.segments, Segment{Range: g.ids(), Next: g.First, Run: g.Run})
	}
	slices.SortFunc(b.segments, func(x, y Segment) int { return cmp.Compare(x.First, y.First) })
	b.trimLocked()
	n += b.leftLocked()
	b.serveLocked()
	b.saved = b.waiters.Len() > 0
	a.recountLocked(b)
	return n
}

func (g Given) ids() Range { return Range{First: g.First, Last: g.Last} }
