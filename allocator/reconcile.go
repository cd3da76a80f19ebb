package allocator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/leafbus/leafbus/internal/fresh"
)

var apart = fresh.Apart

// follower takes in the records of other generators, and raises what was set back:
//
//	Push, Records.Watch ── reconcile   one merge, field by field
//	├── overlap                        a range of another run
//	├── apply                          floor, rules, step; unusable: a record that cannot be read
//	└── heals ── keepHealed ── heal    records that are below what is known
type follower struct {
	*refills
	heals     heals
	refreshed atomic.Bool // the index has been compared with all records since the watch began
}

// Push takes in a record that another generator has written. When it returns, no ID below the
// record's floor is handed out, and its rules are in force, unless newer ones were known.
func (a *follower) Push(s Stored) Known {
	seen := a.Seen(s.Name)
	u := Update{Stored: s}
	if s.Format > RecordFormat {
		u.Problem = ErrNewer
	}
	a.reconcile(u, true)
	// Of a tag that is not in memory: a later claim is based on this record, or on a newer one.
	k := Known{Floor: s.Below(), Rules: s.Rules}
	if b := a.lockedBuffer(s.Name); b != nil {
		k.Floor, k.Rules = b.floor, b.rulesLocked()
		b.mu.Unlock()
	}
	k.End = max(a.Seen(s.Name), seen)
	return k
}

// Known is what this generator knows of a tag.
func (m *memory) Known(tag string) Known {
	floor, rules := m.Forbids(tag)
	return Known{End: m.Seen(tag), Floor: floor, Order: m.cfg.Index.Order(tag), Rules: rules}
}

// Forbids returns the ID below which none of a tag may be handed out, as far as memory knows (0:
// all may), and the tag's rules. What is in memory of a strict tag is the end of its last claim.
func (m *memory) Forbids(tag string) (floor int64, rules Rules) {
	b := m.lockedBuffer(tag)
	if b == nil {
		return 0, Rules{}
	}
	defer b.mu.Unlock()
	return b.floor, b.rulesLocked()
}

// StillEnding reports whether the alert [Ending] of a tag holds: nothing is known of a deletion or
// of other rules.
func (m *memory) StillEnding(tag string) bool {
	k := m.Known(tag)
	return !m.cfg.Index.deleted(tag) && (k.Version == 0 || k.Ending(k.End))
}

// reconcile merges a record into what this generator has, field by field. So it does not matter in
// which order, or how often, records come from the watch, from other generators, and from its own
// commands:
//
//   - A range of another run is compared with memory. Two generators that hold one range know that
//     the store was set back.
//   - The floor, and the end of a tombstone, only go up. The IDs below are dropped.
//   - Rules with a higher version are in force from then on.
//   - A record that is below the mark, or has older rules, is raised: the store was set back. A
//     pushed one never is, because it may be late.
func (a *follower) reconcile(u Update, pushed bool) {
	s := u.Stored
	if u.First && a.refreshed.Load() {
		a.refreshed.Store(false)
	}
	if changed := a.cfg.Index.damage(s.Name, u.Problem != nil); u.Problem != nil {
		a.claims.latest.Forget(s.Name)
		a.unusable(s, u.Problem, changed)
		return
	} else if changed {
		a.cfg.Notify(Recovered{s.Name, "damaged"})
	}
	was := a.cfg.Index.note(s, u.First)
	if a.shard(s.Name).get(s.Name) != nil { // else nothing is claimed here soon, and a start brings a million records
		a.claims.note(s)
	}
	if s.Last.Run != a.cfg.Run && s.Last.First > 0 {
		a.overlap(s.Name, Range{First: s.Last.First, Last: s.Last.Last}, s.Last.Run)
	}
	a.apply(s, u.First || s.Revision >= was.revision)
	if !pushed && (u.First || s.Revision > was.revision) && (s.MaxID < was.end || a.newerRules(s)) {
		a.heals.add(s.Name)
	}
}

// apply takes in the floor, the rules and the step of a record. The step of one that is older than
// the last one does not count.
func (a *follower) apply(s Stored, current bool) {
	floor := s.Below()
	b := a.lockedBuffer(s.Name)
	if b == nil {
		if floor > 0 {
			a.cfg.Index.Observe(s.Name, floor) // also if nothing of the tag is in memory
		}
		return
	}
	b.raiseFloorLocked(floor)
	if s.Deleted {
		b.wakeLocked()
	} else {
		a.governLocked(b, s.Rules, current)
		switch {
		case s.Order == Strict:
			a.becomeStrictLocked(b)
		case current:
			b.stepper.rebase(s.Step)
		}
	}
	a.recountLocked(b)
	b.mu.Unlock()
	if s.Deleted {
		a.forget(b)
	}
}

// newerRules reports whether memory has newer rules of a tag than the record.
func (a *follower) newerRules(s Stored) bool {
	b := a.lockedBuffer(s.Name)
	if b == nil {
		return false
	}
	defer b.mu.Unlock()
	return b.rulesLocked().Version > s.Version
}

// unusable drops the IDs of a tag whose record cannot be read here. One of a newer version may
// forbid them. Requests are passed on to generators that can read it.
func (a *follower) unusable(s Stored, why error, isNew bool) {
	if isNew {
		a.cfg.Notify(Damaged{Tag: s.Name, Err: why})
		a.cfg.Log.Error("the record of a tag cannot be used", "tag", s.Name, "error", why)
	}
	if !errors.Is(why, ErrNewer) { // what was claimed before the damage stays claimed
		return
	}
	if b := a.lockedBuffer(s.Name); b != nil {
		b.segments = nil
		a.recountLocked(b)
		b.mu.Unlock()
	}
}

// overlap notes that another run has claimed a range. If this generator holds the same IDs, and not
// from that run, the store went backwards unnoticed. Then it drops what is left of them, and pushes
// its own record, so that the other one drops the rest too. It reports whether it held any.
func (a *follower) overlap(tag string, r Range, run string) bool {
	b := a.lockedBuffer(tag)
	if b == nil {
		return false
	}
	if b.wake != nil && len(b.heard) < maxHeard {
		b.heard = append(b.heard, r) // the store may be about to return the same
	}
	held := b.discardLocked(r, run)
	for _, h := range held {
		a.heldTwiceLocked(b, h, r)
	}
	if len(held) > 0 {
		a.refillLocked(b) // for the requests that wait
	}
	b.mu.Unlock()
	for _, h := range held {
		a.cfg.Log.Error("two generators reserved the same IDs, which may come twice: the rest is dropped",
			"tag", tag, "first", h.First, "last", h.Last)
		claim := Claim{First: h.First, Last: h.Last, Node: a.cfg.Node, Run: a.cfg.Run, Time: Now()}
		a.cfg.Push(Stored{Tag: Tag{Name: tag, MaxID: h.Last + 1, Last: claim}}) // without a revision only the range counts
	}
	return len(held) > 0
}

// heals are the tags whose records are below what this generator knows. The zero value is not
// ready.
type heals struct {
	mu     sync.Mutex
	names  map[string]bool
	wanted chan struct{} // holds one
}

func newHeals() heals { return heals{names: make(map[string]bool), wanted: make(chan struct{}, 1)} }

func (h *heals) add(name string) {
	h.mu.Lock()
	h.names[name] = true
	h.mu.Unlock()
	select {
	case h.wanted <- struct{}{}:
	default:
	}
}

func (h *heals) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := slices.Collect(maps.Keys(h.names))
	clear(h.names)
	return names
}

// healsAtOnce bounds the records that are raised at a time.
const healsAtOnce = 8

// keepHealed raises the records that were set back, until the allocator is closed. What fails is
// tried again.
func (a *follower) keepHealed() {
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-a.heals.wanted:
		}
		names := a.heals.take()
		var again atomic.Bool
		each(len(names), healsAtOnce, func(i int) {
			if !a.heal(names[i]) {
				a.heals.add(names[i])
				again.Store(true)
			}
		})
		if again.Load() && !pause(a.ctx, lastPause, nil) {
			return
		}
	}
}

// heal raises the record of a tag. It returns false if that must be tried again.
func (a *follower) heal(tag string) bool {
	ctx, cancel := context.WithTimeout(a.ctx, attemptTimeout)
	defer cancel()
	was, is, err := a.claims.heal(ctx, tag)
	switch {
	case errors.Is(err, ErrDamaged), errors.Is(err, ErrNewer):
	case err != nil:
		return false
	case is.Revision != 0:
		a.cfg.Log.Warn("the store went backwards: the record of a tag is raised",
			"tag", tag, "was", was.MaxID, "now", is.MaxID)
		a.cfg.Notify(Regressed{Tag: tag, Got: was.MaxID, Seen: is.MaxID, Action: Advanced})
		a.cfg.Notify(Recovered{tag, "regressed"})
		a.cfg.Push(is)
	}
	return true
}
