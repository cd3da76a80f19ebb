package allocator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/fresh"
)

const (
	// A range of the database above the record's end shows that another generator reserved the IDs
	// between and is about to claim them. For up to claimTurn that generator goes first, else its
	// range would be lost.
	claimTurn = 25 * time.Millisecond
	// claimLook is how often a claim looks for that meanwhile.
	claimLook = time.Millisecond
	// loadTimeout bounds the read before a claim. It can be repeated safely, and its answer may be
	// lost.
	loadTimeout = time.Second
	// learnFor is how long ago another generator may have claimed a range whose step a start begins
	// with.
	learnFor = time.Hour
	// leftShare of what a limit leaves is the most that is reserved ahead of the requests, so that
	// one generator does not hold the last IDs while others have none.
	leftShare = 64
)

// errTooLate: another generator has claimed IDs above the range. Nothing is wrong.
var errTooLate = fmt.Errorf("%w: another generator claimed a later range first, so this one is lost", ErrConflict)

// claims proposes ranges and claims them in the tags' records. These rules make each ID unique (N1
// to N8 in the design):
//
//	propose   the next IDs after the record's end; in a database, what Numbers took from there
//	refuse    what is below the record's end, or below what this generator knows to be in use
//	swap      the record by compare-and-set, on the revision that was looked at
//	serve     only after the acknowledgement; a write without one is a lost range
type claims struct {
	cfg   *Config
	known func(tag string) (floor int64, rules Rules) // in memory

	latest fresh.Records[Stored] // that were loaded, written, pushed or watched a moment ago
}

// reserve claims the next IDs of a tag, from from on at least: all IDs below are in use. Errors
// that claimed nothing: ErrUnknownTag, ErrExhausted, ErrPaused, ErrConflict (ask again), of these
// an AdvancedError if the store went backwards and was raised, and of a strict tag an
// OvertakenError. After any other error what was to be claimed is lost.
func (c *claims) reserve(ctx context.Context, tag string, p plan, from int64) (Grant, error) {
	s, loaded, err := c.basis(ctx, tag)
	// Neither a refusal nor a heal may rest on a record from before a change.
	if err == nil && !loaded && (p.need == 0 || s.refuses(p.need) != nil || c.behind(s, from)) {
		s, err = c.load(ctx, tag)
	}
	if err == nil && s.Revision == 0 {
		s, err = c.adopt(ctx, tag)
	}
	if err == nil {
		err = s.present()
	}
	if err != nil {
		return Grant{}, err
	}
	if c.behind(s, from) { // so by its limit, too, nothing may be refused: an old server may have answered
		was, is, err := c.heal(ctx, tag)
		switch {
		case err != nil:
		case is.Revision == 0:
			err = overtaken(s, fmt.Errorf("%w: another generator has raised the record of %s", ErrConflict, tag))
		default:
			err = &AdvancedError{Tag: tag, Got: was.MaxID, Seen: is.MaxID}
		}
		return Grant{}, err
	}
	if err := s.refuses(p.need); err != nil || p.need == 0 { // to probe it is enough to load, see [Records]
		return Grant{}, err
	}
	if s.Order.Domain() != "" {
		if err := c.cfg.Keys.Load(ctx, s.Tag); err != nil {
			return Grant{}, err
		}
	}
	if p.base == 0 && s.Order != Strict && s.Last.Step > s.Step && time.Since(s.Last.Time) < learnFor {
		p.step = min(s.Last.Step, max(c.cfg.MaxStep, s.Step))
		p.n = max(p.n, p.step)
	}
	r, err := c.propose(ctx, &s, p, from)
	if err != nil {
		return Grant{}, s.beyond(err)
	}
	return c.claim(ctx, s, Claim{First: r.First, Last: r.Last, Node: c.cfg.Node, Run: c.cfg.Run, Step: p.step})
}

// beyond is the error of a range of the database above the last ID, while the record has IDs left.
// Only the record exhausts a tag: SQL may have moved max_id by mistake, and it can be set back
// until the record has risen to it.
func (s Stored) beyond(err error) error {
	if !errors.Is(err, ErrExhausted) || s.Left(s.MaxID) == 0 {
		return err
	}
	return fmt.Errorf("%w: max_id of %s in the database is above its last ID, and its record ends at %d: "+
		"if that is a mistake, set max_id back by SQL at once", ErrDamaged, s.Name, s.MaxID)
}

// refuses is the error if the record does not let n IDs be claimed. Of a tag in memory the last
// ones are enough: then memory shows which requests they are enough for.
func (s Stored) refuses(n int64) error {
	if err := s.present(); err != nil {
		return err
	}
	if s.Paused {
		return &PausedError{s.Rules}
	}
	if left := s.Left(s.MaxID); left < n && (s.Order == Strict || left == 0) {
		return fmt.Errorf("%w: the store has %d IDs of %s left", ErrExhausted, left, s.Name)
	}
	return nil
}

// basis returns the record that a claim goes by. If a fresh one is not known, it is loaded.
func (c *claims) basis(ctx context.Context, tag string) (s Stored, loaded bool, err error) {
	if s, ok := c.latest.Get(tag); ok {
		return s, false, nil
	}
	s, err = c.load(ctx, tag)
	return s, true, err
}

// load reads the record of a tag. A process that stood still meanwhile reads it again: the records
// may have been set back since the answer, and then its revision may be that of another record.
func (c *claims) load(ctx context.Context, tag string) (Stored, error) {
	for {
		at := time.Now()
		s, err := c.loadOnce(ctx, tag)
		if err != nil || apart(time.Now(), at) <= loadTimeout {
			if err == nil && s.Revision != 0 {
				c.latest.Put(tag, s, at)
			}
			return s, err
		}
	}
}

func (c *claims) loadOnce(ctx context.Context, tag string) (Stored, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	c.latest.Forget(tag)
	return c.cfg.Records.Load(ctx, tag)
}

// swap writes a record, and remembers it.
func (c *claims) swap(ctx context.Context, t Tag, revision uint64) (Stored, error) {
	at := time.Now()
	revision, err := c.cfg.Records.Swap(ctx, t, revision)
	if err != nil {
		c.latest.Forget(t.Name)
		return Stored{}, err
	}
	s := Stored{t, revision}
	c.latest.Put(t.Name, s, at)
	return s, nil
}

// note remembers a record that came from another generator or from the watch.
func (c *claims) note(s Stored) {
	if old, ok := c.latest.Get(s.Name); s.Revision != 0 && (!ok || old.Revision < s.Revision) {
		at := time.Now()
		// A process that stood still gets old records, of which the revision may have been given
		// again.
		if s.Updated.Before(at) {
			at = s.Updated
		}
		c.latest.Put(s.Name, s, at)
	}
}

// propose returns the range that is to be claimed: the next one after the record's end, or what the
// database gives. It sets the step of the record to that of the row.
func (c *claims) propose(ctx context.Context, s *Stored, p plan, from int64) (Range, error) {
	left := s.Left(s.MaxID)
	n := max(min(p.need, left), min(max(p.n, s.Step), left/leftShare))
	switch {
	case s.Order == Strict:
		n = p.need
	case c.cfg.Numbers != nil && s.Order == Trend:
		r, step, err := c.cfg.Numbers.Advance(ctx, s.Name, n, s.Step, max(s.MaxID, from))
		if err == nil {
			err = (Grant{Range: r, Step: step}).check(max(s.MaxID, from))
		}
		s.Step = step
		return r, err
	}
	return Range{First: s.MaxID, Last: s.MaxID + n - 1}, nil
}

// claim claims a range, or as much of it as lies up to the tag's limit. A range of the database is
// claimed again after a certain conflict, on the record as it is then.
func (c *claims) claim(ctx context.Context, s Stored, claim Claim) (Grant, error) {
	step, ofDatabase := s.Step, c.cfg.Numbers != nil && s.Order == Trend
	pauseFor := time.Duration(0)
	for begun := time.Now(); ; {
		if claim.First < c.cfg.Index.End(s.Name) { // a push of another generator, too, shows a later claim
			return Grant{}, overtaken(s, errTooLate)
		}
		if ofDatabase && s.MaxID < claim.First && s.Last.First != 0 {
			if until := begun.Add(claimTurn); time.Now().Before(until) {
				if s = c.newer(ctx, s, until); ctx.Err() == nil { // the watch may have shown what was known
					continue
				}
			}
		}
		claim.Time = Now()
		t, err := s.Claim(claim)
		if err != nil {
			return Grant{}, s.beyond(err)
		}
		t.Step = step
		made, err := c.swap(ctx, t, s.Revision)
		if err == nil {
			return Grant{Range: Range{First: claim.First, Last: t.Last.Last}, Step: max(t.Step, 1), Stored: made,
				Ending: !t.Ending(s.MaxID) && t.Ending(t.MaxID)}, nil
		}
		if !errors.Is(err, ErrConflict) {
			return Grant{}, err
		}
		was := s
		if s, err = c.load(ctx, s.Name); err != nil {
			return Grant{}, err
		}
		if pauseFor > 0 && !pause(ctx, rand.N(pauseFor), nil) {
			return Grant{}, ctx.Err()
		}
		pauseFor = min(max(2*pauseFor, firstRace), lastRace)
		switch {
		case s.Revision == 0: // all records are lost: the next attempt makes it again, if the database has the tag
			return Grant{}, fmt.Errorf("%w: the record of %s is gone", ErrConflict, was.Name)
		case s.Revision == was.Revision: // a replicated stream refuses the only writer now and then: nobody was first
		case s.Order == Strict, !ofDatabase:
			return Grant{}, overtaken(s, fmt.Errorf("%w: another generator changed the record of %s first", ErrConflict, s.Name))
		}
	}
}

// overtaken is the error of a claim that came too late; that of a strict tag names who was first.
func overtaken(s Stored, err error) error {
	if s.Order == Strict {
		return &OvertakenError{Tag: s.Name, Run: s.Last.Run}
	}
	return err
}

// behind reports whether this generator knows more than a record says.
func (c *claims) behind(s Stored, end int64) bool {
	_, rules := c.known(s.Name)
	return s.MaxID < end || s.Version < rules.Version
}

// healed returns a record with all that this generator knows.
func (c *claims) healed(s Stored, end int64) Tag {
	floor, rules := c.known(s.Name)
	if s.Order == Strict { // what memory has is the end of the last claim
		end, floor = max(end, floor), 0
	}
	t := s.Rise(end, floor)
	if rules.Version > t.Version {
		t.Rules = rules
	}
	return t
}

// heal makes the record of a tag have all that this generator knows: the store was set back. is has
// no revision if there was nothing to do.
func (c *claims) heal(ctx context.Context, tag string) (was, is Stored, err error) {
	s, err := c.load(ctx, tag)
	if err != nil || s.Revision == 0 {
		return s, is, err
	}
	if t := c.healed(s, c.cfg.Index.End(tag)); t != s.Tag {
		is, err = c.swap(ctx, t, s.Revision) // not if an old server has answered: then the record has another revision
	}
	return s, is, err
}

// adopt makes the record of a tag that has none and of which the database has a row: SQL made it,
// or JetStream lost the record.
func (c *claims) adopt(ctx context.Context, tag string) (Stored, error) {
	lost := c.cfg.Records.Err()
	unknown := ErrUnknownTag
	switch { // the tag may be one of those that are lost
	case errors.Is(lost, ErrTagsLost), errors.Is(lost, ErrUnavailable):
		unknown = lost
	case lost != nil:
		unknown = fmt.Errorf("%w: %w", ErrUnavailable, lost)
	}
	if c.cfg.Numbers == nil {
		return Stored{}, unknown
	}
	row, err := c.cfg.Numbers.Peek(ctx, tag)
	switch {
	case err != nil:
		return Stored{}, err
	case row.Kind == KindStrict || row.Kind == KindOpaque:
		return Stored{}, lostRecord(tag, "of kind "+row.Kind)
	case row.MaxID == 0:
		return Stored{}, unknown
	case row.Problem != nil:
		return Stored{}, row.Problem
	case lost != nil && !errors.Is(lost, ErrTagsLost):
		return Stored{}, unknown
	}
	known, err := c.cfg.Ask(ctx, tag)
	if err != nil {
		return Stored{}, err
	}
	floor, rules := c.known(tag)
	known = known.Merge(Known{End: c.cfg.Index.End(tag), Floor: floor, Order: c.cfg.Index.Order(tag), Rules: rules})
	if known.Order != Trend { // somebody made a row of that name
		return Stored{}, lostRecord(tag, known.Order.kind())
	}
	t := Tag{Name: tag, MaxID: max(row.MaxID, row.Mark, 1), Step: row.Step, Description: row.Description,
		Rules: known.Rules, Updated: Now()}
	s, err := c.swap(ctx, t.Rise(known.End, known.Floor), 0)
	if errors.Is(err, ErrConflict) { // another generator was first
		return c.load(ctx, tag)
	}
	return s, err
}

func lostRecord(tag, kind string) error {
	return fmt.Errorf("%w: %s is, or was, %s, and its record is lost: restore a backup", ErrTagsLost, tag, kind)
}

// newer waits until a record is known that is newer than s. It returns s if the time is over.
func (c *claims) newer(ctx context.Context, s Stored, until time.Time) Stored {
	for ok := true; ok; ok = time.Now().Before(until) && pause(ctx, claimLook, nil) {
		if now, fresh := c.latest.Get(s.Name); fresh && now.Revision > s.Revision {
			return now
		}
	}
	return s
}

// Known is what a generator knows of a tag, whatever its record says. Its JSON is that of messages
// between generators.
type Known struct {
	End   int64 `json:"end,string,omitempty"`   // of all ranges that are known to be in use
	Floor int64 `json:"floor,string,omitempty"` // no ID below it is handed out
	Order Order `json:"order,omitempty"`        // of its record that was seen last; Trend: none was, perhaps
	Rules
}

// Merge returns what both know.
func (k Known) Merge(other Known) Known {
	k.End, k.Floor, k.Order = max(k.End, other.End), max(k.Floor, other.Floor), cmp.Or(k.Order, other.Order)
	if other.Version > k.Version {
		k.Rules = other.Rules
	}
	return k
}

// Keys are the keys of opaque tags. Their methods are safe for concurrent use.
type Keys interface {
	// Load makes sure that the key of an opaque tag is in memory. The error matches ErrDamaged if
	// the key is lost, or is not the one that the record names: another key would repeat IDs.
	Load(ctx context.Context, t Tag) error
	// Make returns the ID of the key of a new opaque tag. All keys come from one secret, which is
	// made with the first of them. If there is none, before says what shows that there was one;
	// empty: nothing. Then it is lost, and another one would repeat IDs.
	Make(ctx context.Context, t Tag, before func(context.Context) (sign string, err error)) (id string, err error)
}

// noKeys are the keys of an allocator that has no opaque tags.
type noKeys struct{}

func (noKeys) Load(context.Context, Tag) error {
	return fmt.Errorf("%w: opaque tags have no keys here", ErrUnavailable)
}

func (noKeys) Make(context.Context, Tag, func(context.Context) (string, error)) (string, error) {
	return "", fmt.Errorf("%w: opaque tags have no keys here", idspace.ErrBadValue)
}
