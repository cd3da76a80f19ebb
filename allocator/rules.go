package allocator

import (
	"fmt"
	"math"
	"time"

	"github.com/leafbus/leafbus/bus/idspace"
)

// Rules are what an operator may set for a tag, beyond what Leaf's table can hold. The zero value
// sets nothing. Its JSON is the wire's.
type Rules struct {
	// Quota bounds the IDs a second of all generators together. The zero Quota is no bound.
	Quota idspace.Quota `json:"quota,omitzero"`
	// Paused refuses all requests, and reserves nothing.
	Paused bool `json:"paused,omitempty"`
	// Outlast is how long the IDs in memory should last; see [Config]. 0: as configured. Not for
	// strict tags.
	Outlast idspace.Duration `json:"outlast,omitempty"`
	// Limit is the largest ID that may be handed out. 0: the largest int64 but one. Of an opaque
	// tag it is the largest number of its domain.
	Limit int64 `json:"limit,omitempty,string"`
	// Version grows by one with each change. After a restore of the store a generator that knows a
	// higher one writes its rules back.
	Version int64 `json:"rules_version,omitempty,string"`
}

// With returns the rules after a change, with a new version if anything is in it. The error matches
// [idspace.ErrBadValue].
func (r Rules) With(c idspace.RulesChange) (Rules, error) {
	if c == (idspace.RulesChange{}) {
		return r, nil
	}
	if c.Quota != nil {
		q, err := c.Quota.Complete()
		if err != nil {
			return r, err
		}
		r.Quota = q
	}
	if c.Paused != nil {
		r.Paused = *c.Paused
	}
	if c.Outlast != nil {
		if d := time.Duration(*c.Outlast); d != 0 && (d < time.Second || d > idspace.LimitOutlast) {
			return r, fmt.Errorf("%w: outlast %v is not from 1s to %v", idspace.ErrBadValue, *c.Outlast,
				idspace.Duration(idspace.LimitOutlast))
		}
		r.Outlast = *c.Outlast
	}
	if c.Limit != nil {
		if *c.Limit < 0 || *c.Limit == math.MaxInt64 {
			return r, fmt.Errorf("%w: limit %d is not from 1 to %d", idspace.ErrBadValue, int64(*c.Limit),
				int64(math.MaxInt64-1))
		}
		r.Limit = int64(*c.Limit)
	}
	r.Version++
	return r, nil
}

// NewRules returns the rules of a new tag of this order. The domain of an opaque tag is its limit.
// The error matches [idspace.ErrBadValue].
func NewRules(c idspace.RulesChange, o Order) (Rules, error) {
	if err := o.checkChange(c); err != nil {
		return Rules{}, err
	}
	if o.Domain() != "" {
		c.Limit = (*idspace.Limit)(new(o.limit()))
	}
	r, err := Rules{}.With(c)
	if err == nil {
		err = r.checkFor(o)
	}
	return r, err
}

// checkChange reports whether a change of rules fits a tag of this order. The error matches
// [idspace.ErrBadValue].
func (o Order) checkChange(c idspace.RulesChange) error {
	if d := o.Domain(); d != "" && c.Limit != nil {
		return fmt.Errorf("%w: an opaque tag has no limit of its own: it ends with its domain %s, at %d",
			idspace.ErrBadValue, d, d.Last())
	}
	return nil
}

// After returns the rules of a tag that is created, where old are those of a deleted tag of that
// name. Generators may remember those.
func (r Rules) After(old Rules) Rules {
	if old.Version > 0 {
		r.Version = max(r.Version, old.Version+1)
	}
	return r
}

// checkFor reports whether the rules fit a tag of this order. The error matches
// [idspace.ErrBadValue].
func (r Rules) checkFor(o Order) error {
	if o == Strict && r.Outlast != 0 {
		return fmt.Errorf("%w: a strict tag has no outlast, because it keeps no IDs in memory", idspace.ErrBadValue)
	}
	return nil
}

// end is the ID above the largest one that may be handed out.
func (r Rules) end() int64 {
	if r.Limit == 0 {
		return math.MaxInt64
	}
	return r.Limit + 1
}

// Left is how many IDs from next on may be handed out.
func (r Rules) Left(next int64) int64 { return max(r.end()-next, 0) }

// Ending reports whether 80 % of the IDs are reserved, where next is the next one.
func (r Rules) Ending(next int64) bool {
	last := r.end() - 1
	return next > last-last/5
}

// PausedError is an [ErrPaused] with the rules by which the tag is paused.
type PausedError struct{ Rules Rules }

func (e *PausedError) Error() string { return ErrPaused.Error() }

// Unwrap makes the error match ErrPaused.
func (e *PausedError) Unwrap() error { return ErrPaused }
