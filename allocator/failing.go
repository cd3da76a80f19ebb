package allocator

import (
	"container/list"
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
func (a *Allocator) Failing() Failing {
	t := &a.troubles
	t.mu.Lock()
	defer t.mu.Unlock()
	var f Failing
	for kind := range t.of {
		f.Tags += t.of[kind].Len()
	}
	first := t.firstLocked(storeAway)
	if first == nil && t.locked > 0 && t.refills == a.refills.Load() {
		first = t.firstLocked(lockedTag)
	}
	if first != nil {
		f.Store = first.err
	}
	if first = t.firstLocked(storeAway, lockedTag); first != nil && t.haveIDs == 0 {
		f.Dry = fmt.Errorf("%s has no IDs: %w", first.tag, first.err)
	}
	return f
}

// The kinds of trouble of a tag whose refills fail.
const (
	noTrouble  = iota
	damagedTag // its record is damaged
	lockedTag  // its record is locked
	storeAway  // the store fails
	kindsOfTrouble
)

// troubles counts the tags whose refills fail. Each change updates it, because going
// through 100,000 failing tags took 36 ms, under the lock that a new tag needs. Its lock
// comes after that of a buffer.
type troubles struct {
	mu      sync.Mutex
	of      [kindsOfTrouble]list.List // of *trouble; those that have failed for longest come first
	haveIDs int                       // tags that have IDs in memory, failing or not
	// locked is how many tags were found locked since the last successful refill of any
	// tag. It is true while that many refills have succeeded.
	locked  int
	refills int64
}

// trouble is why the refills of a tag fail.
type trouble struct {
	kind    int
	tag     string
	err     error
	refills int64 // how many refills of all tags had succeeded when it began
}

func (t *trouble) locked() bool { return t.kind == lockedTag }

// firstLocked returns the first trouble of these kinds; nil: there is none.
func (t *troubles) firstLocked(kinds ...int) *trouble {
	for _, kind := range kinds {
		if e := t.of[kind].Front(); e != nil {
			return e.Value.(*trouble)
		}
	}
	return nil
}

// recountLocked brings the troubles up to date with b. Call it before you release the lock of
// b if b began or ceased to fail or to have IDs, or fails for another reason.
func (a *Allocator) recountLocked(b *buffer) {
	kind, hasIDs := b.troubleLocked(), b.left > 0 && !b.gone
	t := &a.troubles
	if kind == noTrouble && b.trouble == nil && hasIDs == b.hasIDs {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if hasIDs != b.hasIDs {
		b.hasIDs = hasIDs
		if hasIDs {
			t.haveIDs++
		} else {
			t.haveIDs--
		}
	}
	if b.trouble != nil {
		old := b.trouble.Value.(*trouble)
		if old.kind == kind {
			old.err = b.failure.err
			return
		}
		t.of[old.kind].Remove(b.trouble)
		b.trouble = nil
		if old.locked() && old.refills == t.refills {
			t.locked--
		}
	}
	if kind == noTrouble {
		return
	}
	now := &trouble{kind: kind, tag: b.tag, err: b.failure.err, refills: b.failure.refills}
	b.trouble = t.of[kind].PushBack(now)
	if refills := a.refills.Load(); now.locked() && now.refills == refills {
		if t.refills != refills {
			t.refills, t.locked = refills, 0
		}
		t.locked++
	}
}

// troubleLocked is the kind of trouble that b has.
func (b *buffer) troubleLocked() int {
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
