package allocator

import (
	"errors"
	"fmt"
	"time"
)

// What can go wrong. Test with [errors.Is]; the messages say more.
var (
	ErrBadCount      = errors.New("illegal count")
	ErrBatchTooLarge = errors.New("batch too large")
	ErrUnknownTag    = errors.New("unknown tag")
	ErrExists        = errors.New("the tag exists")
	ErrConflict      = errors.New("conflict")

	// ErrUnavailable: the store cannot be reached, or does not do its work.
	ErrUnavailable = errors.New("the store is unavailable")
	// ErrDamaged: the store's record of the tag is not what was written. An operator must fix it.
	ErrDamaged = errors.New("the tag's record is damaged")
	// ErrNewer: the tag's record is of a newer version of this program. Only that version can serve
	// the tag.
	ErrNewer = errors.New("the tag's record is of a newer version")
	// ErrTagsLost: the store lost the records of all tags. A tag without a record may have been one
	// of them.
	ErrTagsLost = errors.New("the records of all tags are lost")
	// ErrLocked: the tag's record was locked for longer than a reservation
	// waits. Nothing was done, and the store serves other tags.
	ErrLocked = errors.New("the tag's record is locked")
	// ErrRefused: the generator does not belong to this store. Retries do not
	// help: an operator must change something.
	ErrRefused = errors.New("refused")
	// ErrMisconfigured: the store is unavailable until an operator changes something: a password, a
	// right, a name. A generator that has never used this store is refused; others wait.
	ErrMisconfigured = errors.New("an operator must act")
	// ErrUncertain: a change of a tag got no answer, and may have happened. It is safe to repeat.
	ErrUncertain = errors.New("it may have happened: send it again")
	// ErrExhausted: the tag has no IDs left, and never will unless an operator raises its limit.
	ErrExhausted = errors.New("the tag is exhausted")

	// ErrPaused: an operator has paused the tag.
	ErrPaused = errors.New("the tag is paused: `leaf tag resume` lets it go on")
	// ErrQuota: the tag's quota is used up for now. The error is a [QuotaError].
	ErrQuota = errors.New("the tag's quota is used up")

	ErrOverloaded = errors.New("too many requests are waiting")
	ErrTimedOut   = errors.New("waited too long for a segment")
	ErrClosed     = errors.New("the generator is shutting down")
)

// orderConflict returns the [ErrConflict] of a new tag that is, or was, a tag of the order o.
func orderConflict(o Order) error {
	return fmt.Errorf("%w: it is, or was, %s, for life: create it as such, or choose another name", ErrConflict, o.kind())
}

// ErrDeleted is the [ErrUnknownTag] of a tag whose tombstone the store keeps.
var ErrDeleted = fmt.Errorf("%w: it was deleted", ErrUnknownTag)

// UnavailableError is an [ErrUnavailable] with its cause.
type UnavailableError struct {
	Err        error         // the store's
	RetryAfter time.Duration // until the next attempt to refill
}

func (e *UnavailableError) Error() string {
	if errors.Is(e.Err, ErrUnavailable) {
		return e.Err.Error()
	}
	return fmt.Sprintf("%v: %v", ErrUnavailable, e.Err)
}

// Unwrap makes the error match ErrUnavailable and its cause.
func (e *UnavailableError) Unwrap() []error { return []error{ErrUnavailable, e.Err} }

// AdvancedError says that the store went backwards, and that its max_id was moved up again. It
// matches [ErrConflict]: nothing was reserved, ask again.
type AdvancedError struct {
	Tag  string
	Got  int64 // max_id as it was
	Seen int64 // all IDs below are in use; max_id is there now, or above
}

func (e *AdvancedError) Error() string {
	return fmt.Sprintf("the store went backwards: max_id of %s was %d and is moved up, because all IDs below %d are in "+
		"use",
		e.Tag, e.Got, e.Seen)
}

// Unwrap makes the error match ErrConflict.
func (e *AdvancedError) Unwrap() error { return ErrConflict }

// OvertakenError says that another generator changed the record of a strict tag first. It matches
// [ErrConflict]: nothing was written.
type OvertakenError struct {
	Tag string
	Run string // of the generator that claimed last, by the record; empty: unknown
}

func (e *OvertakenError) Error() string {
	return fmt.Sprintf("another generator changed the record of %s first", e.Tag)
}

// Unwrap makes the error match ErrConflict.
func (e *OvertakenError) Unwrap() error { return ErrConflict }

// inUseBefore is the [ErrConflict] of a name that was in use before, and whose record is lost. How
// far a strict tag was, nobody can know, and in which domain an opaque one. IDs below end are known
// to be in use.
func inUseBefore(tag string, end int64) error {
	return fmt.Errorf("%w: %s was in use before, and its record is lost: restore a backup, or say where it begins: "+
		"leaf tag add %[2]s --max-id N, N above all IDs that your services got, and at least %d. "+
		"An opaque tag must have its domain again", ErrConflict, tag, end)
}
