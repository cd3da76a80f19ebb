package allocator

import (
	"errors"
	"fmt"
	"sync"
)

// alarms sends alerts and their ends, and knows which tags fail. The lock of a buffer guards what
// it keeps there.
type alarms struct {
	notify   func(Event)
	index    *Index
	troubles troubles
}

// episodes are those of a tag that end with a refill.
var episodes = [...]string{refillFailed: "refill_failed", starved: "starved", regressed: "regressed"}

const (
	refillFailed = iota
	starved
	regressed
)

// alerts are the episodes that are not over.
type alerts [len(episodes)]bool

// recoveredLocked ends the episodes of a store that fails. Call it after a refill, when the
// tag leaves memory, and when the store answers, though not with a range to serve.
func (a *alarms) recoveredLocked(b *buffer) {
	for episode, name := range episodes {
		if b.alerts[episode] {
			a.notify(Recovered{b.tag, name})
		}
	}
	b.alerts, b.failure = alerts{}, nil
	a.recountLocked(b)
}

// regressedLocked reports that the store went backwards, once until the next refill succeeds, and
// each range that may come twice. A buffer that is gone reports nothing: no refill would end the
// alert.
func (a *alarms) regressedLocked(b *buffer, e Regressed) {
	if !b.gone && (!b.alerts[regressed] || e.Action == Dropped) {
		b.alerts[regressed] = true
		a.notify(e)
	}
}

// heldTwiceLocked reports a range of this generator of which another one has claimed a part.
func (a *alarms) heldTwiceLocked(b *buffer, own, other Range) {
	a.regressedLocked(b, Regressed{Tag: b.tag, Got: other.First, Seen: own.Last + 1, Action: Dropped,
		InDoubt: Range{First: max(own.First, other.First), Last: min(own.Last, other.Last)}})
}

// mayAlertLocked reports whether b may raise an alert. A name of which nothing is known may not:
// callers can ask for any name while the store is away, and would hide the alerts that count. One
// that is gone may not, because nothing would end the alert.
func (a *alarms) mayAlertLocked(b *buffer) bool {
	return !b.gone && (b.stepper.base > 0 || a.index.End(b.tag) > 0)
}

// Failing is about the tags whose refills fail. A record that is damaged, newer or locked is no
// failure of the store.
type Failing struct {
	Tags int // their number
	// Store is the latest error of those that fail because the store does; nil: there is none.
	Store error
	// Dry says why memory has no IDs of any tag; nil: it has some, or no store fails. One
	// that lacks only the IDs of one tag gets those from another generator.
	Dry error
}

// Failing returns what is known of the tags whose refills fail. It takes constant time, because it
// is called several times in 200 ms.
func (a *alarms) Failing() Failing {
	t := &a.troubles
	t.mu.Lock()
	defer t.mu.Unlock()
	f := Failing{Tags: t.tags[ownTrouble] + t.tags[storeAway]}
	if t.tags[storeAway] > 0 {
		f.Store = t.err
		if t.haveIDs == 0 {
			f.Dry = fmt.Errorf("memory has no IDs: %w", t.err)
		}
	}
	return f
}

// The kinds of trouble of a tag whose refills fail.
const (
	noTrouble  = uint8(iota)
	ownTrouble // its record is damaged, newer or locked
	storeAway  // the store fails
	kindsOfTrouble
)

// troubles counts the tags whose refills fail. Each change updates it, because going
// through 100,000 failing tags took 36 ms, under the lock that a new tag needs. Its lock
// comes after that of a buffer.
type troubles struct {
	mu      sync.Mutex
	tags    [kindsOfTrouble]int // by the kind; that of noTrouble counts nothing
	haveIDs int                 // tags that have IDs in memory, failing or not
	err     error               // the latest one of a tag for which the store fails
}

// recountLocked brings the troubles up to date with b. Call it before you release the lock of
// b if b began or ceased to fail or to have IDs, or fails for another reason.
func (a *alarms) recountLocked(b *buffer) {
	kind, hasIDs := b.troubleLocked(), b.leftLocked() > 0 && !b.gone
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
	t.tags[b.trouble]--
	if kind == storeAway {
		t.err = b.failure.err
	}
	t.tags[kind]++
	b.trouble, b.hasIDs = kind, hasIDs
}

// troubleLocked is the kind of trouble that b has.
func (b *buffer) troubleLocked() uint8 {
	if b.failure == nil || b.gone {
		return noTrouble
	}
	if err := b.failure.err; errors.Is(err, ErrDamaged) || errors.Is(err, ErrNewer) || errors.Is(err, ErrLocked) {
		return ownTrouble
	}
	return storeAway
}
