package allocator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"
)

// What a record allows is in the methods below. They are pure: a record becomes another one, or
// there is an error and nothing changes. What each of them refuses:
//
//	                      Claim             Create          Change          Delete
//	no record             ErrUnknownTag     –               ErrUnknownTag   ErrUnknownTag
//	deleted               ErrDeleted        –               ErrDeleted      ErrDeleted
//	there, not deleted    –                 ErrExists       –               –
//	another order         –                 ErrConflict     –               –
//	paused                PausedError       –               –               –
//	below End             ErrConflict       –               ErrConflict     –
//	above the limit       ErrExhausted      –               –               –
//
// Rise refuses nothing: it only ever moves End and Floor up.

// present is the error of a record of which nothing can be claimed or changed.
func (s Stored) present() error {
	switch {
	case s.Revision == 0:
		return ErrUnknownTag
	case s.Deleted:
		return ErrDeleted
	}
	return nil
}

// Claim returns the record after a claim: of its range, or of as much of it as lies up to the
// limit. Its step is that of the claim. The range of c in the new record is what was claimed.
func (s Stored) Claim(c Claim) (Tag, error) {
	t := s.Tag
	if err := s.present(); err != nil {
		return t, err
	}
	if t.Paused {
		return t, &PausedError{t.Rules}
	}
	if c.First < t.MaxID {
		return t, errTooLate
	}
	if t.Left(c.First) == 0 {
		return t, fmt.Errorf("%w: %s has no IDs left up to its limit", ErrExhausted, t.Name)
	}
	c.Last = min(c.Last, t.end()-1)
	t.MaxID, t.Last, t.Updated = c.Last+1, c, c.Time
	return t, nil
}

// Create returns the record of a new tag, where s is what there is of that name. known is the end
// of all that anybody knows to be in use of it: the tag begins there or above. Of a name that was
// used before the floor is where it begins again, so that no generator hands out what it may still
// hold.
func (s Stored) Create(t Tag, known int64) (Tag, error) {
	switch {
	case s.Revision != 0 && s.Order != t.Order:
		return s.Tag, fmt.Errorf("%s: %w", t.Name, orderConflict(s.Order))
	case s.Revision != 0 && !s.Deleted:
		return s.Tag, fmt.Errorf("%w: %s", ErrExists, t.Name)
	}
	t.MaxID, t.Last, t.Deleted = max(t.MaxID, s.MaxID, known, 1), s.Last, false
	if t.Floor = t.MaxID; t.MaxID == 1 {
		t.Floor = 0
	}
	t.Rules, t.Updated = t.Rules.After(s.Rules), Now()
	return t, nil
}

// Change returns the record after a change by an operator.
func (s Stored) Change(c Change) (Tag, error) {
	if err := s.present(); err != nil {
		return s.Tag, err
	}
	return s.Tag.With(c)
}

// Delete returns the tombstone of a tag, where all IDs below known are in use.
func (s Stored) Delete(known int64) (Tag, error) {
	if err := s.present(); err != nil {
		return s.Tag, err
	}
	t := s.Tag.Rise(known, 0)
	t.Deleted, t.Updated = true, Now()
	return t, nil
}

// Rise returns the record with End and Floor moved up to these, never down.
func (t Tag) Rise(end, floor int64) Tag {
	t.MaxID, t.Floor = max(t.MaxID, end, floor), max(t.Floor, floor)
	return t
}

// Merge returns the record after the restore of a backup that has old. Nothing is lowered. known is
// how far anybody knows the tag to be in use. Where MaxID rises, generators drop the IDs below: two
// of them may have a range. A tag that was created again since the deletion that old has stays. The
// error matches [ErrRefused]: the two are of different tags.
func (t Tag) Merge(old Tag, known int64) (Tag, error) {
	if old.Order != t.Order || old.KeyID != t.KeyID {
		return t, fmt.Errorf("%w: the tag %s has another order or key than in the backup", ErrRefused, t.Name)
	}
	t.Deleted = t.Deleted || old.Deleted && old.MaxID >= t.MaxID && old.Updated.After(t.Updated)
	if old.MaxID > t.MaxID {
		t.Last = old.Last
	}
	if old.Version > t.Version {
		t.Rules = old.Rules
	}
	t.Floor = max(t.Floor, old.Floor)
	if end := max(old.MaxID, known); end > t.MaxID {
		t = t.Rise(end, end)
	}
	return t, nil
}

// The kinds of tags, in [Row.Kind]. A name has one kind for life.
const (
	KindTrend  = "trend"
	KindStrict = "strict"
	KindOpaque = "opaque"
)

// Kind is the kind of a tag.
func (t Tag) Kind() string {
	if t.Order.Domain() != "" {
		return KindOpaque
	}
	return cmp.Or(string(t.Order), KindTrend)
}

// Claim says who claimed a range, and when. It is evidence for people: no decision rests on it. The
// zero Claim means that there is none.
type Claim struct {
	First int64     `json:"first,string"`
	Last  int64     `json:"last,string"`
	Node  string    `json:"node"`           // the generator
	Run   string    `json:"run,omitempty"`  // of it: each start has another
	Step  int64     `json:"step,omitempty"` // of a tag in trend order, as the generator has adapted it
	Time  time.Time `json:"time"`           // by its clock
}

// UnmarshalJSON implements [json.Unmarshaler]. A claim that cannot be read becomes the zero Claim:
// bad evidence must not damage the record.
func (c *Claim) UnmarshalJSON(data []byte) error {
	type plain Claim
	var p plain
	if err := json.Unmarshal(data, &p); err != nil {
		p = plain{}
	}
	*c = Claim(p)
	return nil
}

// RecordFormat is the format of the records that this version writes, and the only one that it
// reads. A version with another field in the record raises it by 1, and reads this one, too. It
// writes its own only when the heartbeats of all generators that are heard name it: those of this
// version name none.
const RecordFormat = 1
