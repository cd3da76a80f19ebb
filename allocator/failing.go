package allocator

import (
	"errors"
	"fmt"
	"sync"
)

// Failing is about the tags whose refills fail. A damaged record does not count as a
// failure of the store. Neither does a locked one, while other tags are refilled.
type Failing struct {
	Tags int // their number
	// Store is the error of one that fails because the store does; nil: there is none.
	Store error
	// Dry says why memory has no IDs of any tag; nil: it has some, or no store fails. One
	// that lacks only the IDs of one tag gets those from another generator.
	Dry error
}

// Failing returns what is known of the tags whose refills fail. It takes constant time, because it is called several
// times in 200 ms.
func (a *alarms) Failing() Failing {
	t := &a.troubles
	t.mu.Lock()
	defer t.mu.Unlock()
	f := Failing{Tags: t.of[damagedTag].tags + t.of[lockedTag].tags + t.of[storeAway].tags}
	away, locked := &t.of[storeAway], &t.of[lockedTag]
	first := away
	if away.tags == 0 {
		first = locked
	}
	if away.tags > 0 || locked.tags > 0 && t.lockedAt == a.refilled.Load() {
		f.Store = first.err
	}
	if first.tags > 0 && t.haveIDs == 0 {
		f.Dry = fmt.Errorf("%s has no IDs: %w", first.tag, first.err)
	}
	return f
}

// The kinds of trouble of a tag whose refills fail.
const (
	noTrouble  = uint8(iota)
	damagedTag // its record is damaged
	lockedTag  // its record is locked
	storeAway  // the store fails
	kindsOfTrouble
)

// troubles counts the tags whose refills fail. Each change updates it, because going
// through 100,000 failing tags took 36 ms, under the lock that a new tag needs. Its lock
// comes after that of a buffer.
type troubles struct {
	mu       sync.Mutex
	of       [kindsOfTrouble]trouble
	haveIDs  int   // tags that have IDs in memory, failing or not
	lockedAt int64 // how many refills of all tags had succeeded when a tag was last found locked
}

// trouble are the tags that have one kind of it.
type trouble struct {
	tags int
	tag  string // the first of them
	err  error  // its last error
}

// recountLocked brings the troubles up to date with b. Call it before you release the lock of
// b if b began or ceased to fail or to have IDs, or fails for another reason.
func (a *alarms) recountLocked(b *buffer) {
	kind, hasIDs := b.troubleLocked(), b.left > 0 && !b.gone
	if kind == noTrouble && b.trouble == noTrouble && hasIDs == b.hasIDs {
		return
	}
	t := &a.troubles
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case hasIDs && !b.hasIDs:
		t.haveIDs++
	case b.hasIDs && !hasIDs:
		t.haveIDs--
	}
	if kind == lockedTag && b.trouble != lockedTag {
		t.lockedAt = a.refilled.Load()
	}
	t.of[b.trouble].tags-- // that of noTrouble counts nothing
	if now := &t.of[kind]; kind != noTrouble && (now.tags == 0 || now.tag == b.tag) {
		now.tag, now.err = b.tag, b.failure.err
	}
	t.of[kind].tags++
	b.trouble, b.hasIDs = kind, hasIDs
}

// troubleLocked is the kind of trouble that b has.
func (b *buffer) troubleLocked() uint8 {
	if b.failure == nil || b.gone {
		return noTrouble
	}
	switch err := b.failure.err; {
	case errors.Is(err, ErrDamaged):
		return damagedTag
	case errors.Is(err, ErrLocked):
		return lockedTag
	default:
		return storeAway
	}
}
