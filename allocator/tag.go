package allocator

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leafbus/leafbus/bus/idspace"
)

// Limits of a tag's record.
const (
	// MaxDescription is the longest description, in characters.
	MaxDescription = 256
	// DefaultStep is the step of a tag that is created without one.
	DefaultStep = 1000
	// LimitStep is the largest step of a record: a few refills of a step near the
	// largest int64 would use up the tag.
	LimitStep = 1 << 40
)

// Tag is the record of a tag as its store keeps it. Its JSON is the wire's.
type Tag struct {
	Name        string    `json:"tag"`
	MaxID       int64     `json:"end,string"` // the next unreserved ID; at least 1
	Step        int64     `json:"step"`       // the least that is reserved at a time; at least 1, and 0 of a strict tag
	Description string    `json:"description"`
	Updated     time.Time `json:"updated"`
	Order       Order     `json:"order,omitempty"`
	// KeyID is that of the key of an opaque tag, see [opaque.KeyID]. No other key may serve the
	// tag.
	KeyID string `json:"key_id,omitempty"`
	Rules        // what an operator has set beyond these

	// Floor is where an operator last moved MaxID to; 0: never.
	// Generators drop the IDs below it from memory.
	Floor int64 `json:"floor,omitempty,string"`
	// Deleted marks a tombstone: it keeps MaxID, so that a tag that is created
	// again continues above all that was handed out.
	Deleted bool `json:"deleted,omitempty"`
	// Last is the last range that was claimed.
	Last Claim `json:"last,omitzero"`
	// Format is that of the record, see [RecordFormat]; 0: it was not written yet.
	Format int `json:"format,omitempty"`
}

// Below is the ID below which none may be handed out any more; 0: all may. All that was
// handed out of a deleted tag is below its MaxID.
func (t Tag) Below() int64 {
	if t.Deleted {
		return t.MaxID
	}
	return t.Floor
}

// Change says what [Allocator.Change] changes: the fields that are not nil.
type Change struct {
	MaxID       *int64
	Step        *int64
	Description *string
	idspace.RulesChange
}

// MostJump is by how many IDs a change moves max_id ahead without force.
const MostJump = 1_000_000_000_000

// CheckLoss returns an error if a change looks like a typo, because the tag would lose most of its
// IDs. max_id never moves back, so nobody can undo a jump. The error matches [ErrConflict].
func (t Tag) CheckLoss(c Change) error {
	was := t
	rules, err := t.Rules.With(c.RulesChange)
	if err := cmp.Or(t.Order.checkChange(c.RulesChange), err); err != nil {
		return err
	}
	t.Rules = rules
	if c.MaxID != nil {
		t.MaxID = *c.MaxID
	}
	left := t.Left(was.MaxID)
	const force = `If that is right, send it again with --force (over NATS "force":true)`
	switch jump := t.MaxID - was.MaxID; {
	case c.Limit != nil && t.Left(t.MaxID) == 0:
		return fmt.Errorf("%w: the limit %d is below max_id %d: all requests would be refused, and the %d IDs that are left "+
			"would be lost until the limit is raised. %s", ErrConflict, t.Limit, t.MaxID, was.Left(was.MaxID), force)
	case jump > MostJump, jump > left/2:
		return fmt.Errorf("%w: max_id would jump from %d to %d, and %d of the %d IDs that are left would be lost for good. "+
			"%s", ErrConflict, was.MaxID, t.MaxID, min(jump, left), left, force)
	}
	return nil
}

// ParseTag reads NAME[:STEP], for a new tag. Without a step it has
// [DefaultStep], or maxStep if that is less.
func ParseTag(text string, maxStep int64) (Tag, error) {
	name, digits, hasStep := strings.Cut(text, ":")
	t := Tag{Name: name, MaxID: 1, Step: min(DefaultStep, maxStep)}
	err := idspace.CheckTag(name)
	if err == nil && hasStep {
		if t.Step, err = strconv.ParseInt(digits, 10, 64); err == nil {
			err = CheckStep(t.Step, maxStep)
		} else {
			err = fmt.Errorf("%w: step %s is not a whole number", idspace.ErrBadValue, idspace.Quote(digits))
		}
	}
	if err != nil {
		return Tag{}, fmt.Errorf("%q: want NAME or NAME:STEP: %w", text, err)
	}
	return t, nil
}

// CheckStep reports whether a tag's step is from 1 to maxStep. The error
// matches [idspace.ErrBadValue].
func CheckStep(step, maxStep int64) error {
	if step < 1 || step > maxStep {
		return fmt.Errorf("%w: step %d is not from 1 to %d", idspace.ErrBadValue, step, maxStep)
	}
	return nil
}

// CheckDescription reports whether a description is UTF-8 of at most
// [MaxDescription] characters without NUL. The error matches [idspace.ErrBadValue].
func CheckDescription(text string) error {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return fmt.Errorf("%w: the description is not plain UTF-8 text", idspace.ErrBadValue)
	}
	if n := utf8.RuneCountInString(text); n > MaxDescription {
		return fmt.Errorf("%w: the description has %d characters, the limit is %d", idspace.ErrBadValue, n, MaxDescription)
	}
	return nil
}

// Now is the time for a record: UTC, in milliseconds.
func Now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// With returns the record after a change, with the present time. The
// error matches [ErrConflict] if max_id would move backwards: IDs below it may be in use.
func (t Tag) With(c Change) (Tag, error) {
	if c.MaxID != nil {
		if at := max(t.MaxID, t.Floor); *c.MaxID < at {
			return t, fmt.Errorf("%w: max_id is or was %d and only moves forward; %d is below it", ErrConflict, at, *c.MaxID)
		}
		// Even if it is there already, the operator now vouches for it.
		t.MaxID, t.Floor = *c.MaxID, *c.MaxID
	}
	if c.Step != nil {
		if err := CheckStepOf(t.Order, *c.Step, LimitStep); err != nil {
			return t, err
		}
		t.Step = *c.Step
	}
	if c.Description != nil {
		t.Description = *c.Description
	}
	if err := t.Order.checkChange(c.RulesChange); err != nil {
		return t, err
	}
	rules, err := t.Rules.With(c.RulesChange)
	if err == nil && c.Outlast != nil {
		err = rules.checkFor(t.Order)
	}
	if err != nil {
		return t, err
	}
	t.Rules, t.Updated = rules, Now()
	return t, nil
}
