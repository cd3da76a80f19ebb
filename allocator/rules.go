package allocator

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus/idspace"
)

// Rules are what an operator may set for a tag, beyond what Leaf's table can hold. The zero value sets nothing. Its
// JSON is the wire's.
type Rules struct {
	// Quota bounds the IDs a second of all generators together. The zero Quota is no bound.
	Quota Quota `json:"quota,omitzero"`
	// Paused refuses all requests, and reserves nothing.
	Paused bool `json:"paused,omitempty"`
	// Outlast is how long the IDs in memory should last; see [Config]. 0: as configured. Not for strict tags.
	Outlast Duration `json:"outlast,omitempty"`
	// Limit is the largest ID that may be handed out. 0: the largest int64 but one. Of an opaque tag it is the largest
	// number of its domain.
	Limit int64 `json:"limit,omitempty,string"`
	// Version grows by one with each change. After a restore of the store a generator that knows a higher one writes
	// its rules back.
	Version int64 `json:"rules_version,omitempty,string"`
}

// Quota is a token bucket of IDs.
type Quota struct {
	PerSecond int64 `json:"per_second" yaml:"per_second"` // at least 1; 0: there is no quota
	Burst     int64 `json:"burst" yaml:"burst"`           // IDs that may come at once after a pause; at least 1
}

// ParseQuota reads 1000/s, 1000, none or 0. The error matches [ErrBadValue].
func ParseQuota(text string) (q Quota, err error) {
	if q.PerSecond, err = parseRule("quota", strings.TrimSuffix(text, "/s")); err != nil {
		return q, fmt.Errorf("%w: the quota %s is no number of IDs a second, such as 1000/s, or none", ErrBadValue,
			idspace.Quote(text))
	}
	_, err = Rules{}.With(RulesChange{Quota: &q})
	return q, err
}

// UnmarshalYAML reads the fields of a quota, or what ParseQuota reads. The interface is that of the yaml packages.
func (q *Quota) UnmarshalYAML(unmarshal func(any) error) (err error) {
	var text string
	if unmarshal(&text) == nil {
		*q, err = ParseQuota(text)
		return err
	}
	var fields struct {
		PerSecond int64          `yaml:"per_second"`
		Burst     int64          `yaml:"burst"`
		Others    map[string]any `yaml:",inline"`
	}
	if err = unmarshal(&fields); err == nil && len(fields.Others) > 0 {
		err = fmt.Errorf("%w: a quota has the fields per_second and burst", ErrBadValue)
	}
	*q = Quota{fields.PerSecond, fields.Burst}
	return err
}

// noRule is how an operator removes a rule; so does 0.
const noRule = "none"

// parseRule reads a whole number, or none. [Rules.With] knows its bounds.
func parseRule(rule, text string) (int64, error) {
	if text == noRule {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: the %s %s is not a whole number, or none", ErrBadValue, rule, idspace.Quote(text))
	}
	return n, nil
}

// LimitQuota is the largest quota, and the largest burst.
const LimitQuota = 1 << 40

// LimitOutlast is the longest time that IDs in memory can be asked to last.
const LimitOutlast = 7 * 24 * time.Hour

// Duration is a [time.Duration] whose text is short: "15m".
type Duration time.Duration

// String returns the text without units that are zero.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	if string(text) == noRule {
		*d = 0
		return nil
	}
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%w: %.40q is not a time such as 15m", ErrBadValue, text)
	}
	*d = Duration(parsed)
	return nil
}

// RulesChange says what changes of [Rules]: the fields that are not nil. A zero removes the rule.
type RulesChange struct {
	Quota   *Quota    `json:"quota,omitempty" yaml:"quota,omitempty,flow"`
	Paused  *bool     `json:"paused,omitempty" yaml:"paused,omitempty"`
	Outlast *Duration `json:"outlast,omitempty" yaml:"outlast,omitempty"`
	Limit   *Limit    `json:"limit,omitempty" yaml:"limit,omitempty"`
}

// Limit is a [Rules.Limit] in JSON: a string, or a bare whole number.
type Limit int64

// MarshalJSON implements [json.Marshaler].
func (l Limit) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(nil, strconv.FormatInt(int64(l), 10)), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (l *Limit) UnmarshalJSON(b []byte) (err error) {
	if n := len(b); n > 1 && b[0] == '"' && b[n-1] == '"' {
		b = b[1 : n-1]
	}
	*l, err = ParseLimit(string(b))
	return err
}

// UnmarshalYAML reads what ParseLimit reads. The interface is that of the yaml packages.
func (l *Limit) UnmarshalYAML(unmarshal func(any) error) (err error) {
	var text string
	if err = unmarshal(&text); err == nil {
		*l, err = ParseLimit(text)
	}
	return err
}

// ParseLimit reads a whole number, or none. The error matches [ErrBadValue].
func ParseLimit(text string) (Limit, error) {
	n, err := parseRule("limit", text)
	return Limit(n), err
}

// With returns the rules after a change, with a new version if anything is in it. The error matches [ErrBadValue].
func (r Rules) With(c RulesChange) (Rules, error) {
	if c == (RulesChange{}) {
		return r, nil
	}
	if c.Quota != nil {
		q := *c.Quota
		if q.Burst == 0 {
			q.Burst = q.PerSecond
		}
		if min(q.PerSecond, q.Burst) < 0 || max(q.PerSecond, q.Burst) > LimitQuota || q.PerSecond == 0 && q.Burst > 0 {
			return r, fmt.Errorf("%w: a quota of %d IDs a second, in bursts of %d: both must be from 1 to %d",
				ErrBadValue, c.Quota.PerSecond, c.Quota.Burst, int64(LimitQuota))
		}
		r.Quota = q
	}
	if c.Paused != nil {
		r.Paused = *c.Paused
	}
	if c.Outlast != nil {
		if d := time.Duration(*c.Outlast); d != 0 && (d < time.Second || d > LimitOutlast) {
			return r, fmt.Errorf("%w: outlast %v is not from 1s to %v", ErrBadValue, *c.Outlast, Duration(LimitOutlast))
		}
		r.Outlast = *c.Outlast
	}
	if c.Limit != nil {
		if *c.Limit < 0 || *c.Limit == math.MaxInt64 {
			return r, fmt.Errorf("%w: limit %d is not from 1 to %d", ErrBadValue, int64(*c.Limit), int64(math.MaxInt64-1))
		}
		r.Limit = int64(*c.Limit)
	}
	r.Version++
	return r, nil
}

// NewRules returns the rules of a new tag of this order. The domain of an opaque tag is its limit. The error matches
// [ErrBadValue].
func NewRules(c RulesChange, o Order) (Rules, error) {
	if err := c.checkFor(o); err != nil {
		return Rules{}, err
	}
	if o.Domain() != "" {
		c.Limit = (*Limit)(new(o.limit()))
	}
	r, err := Rules{}.With(c)
	if err == nil {
		err = r.checkFor(o)
	}
	return r, err
}

// checkFor reports whether the change fits a tag of this order. The error matches [ErrBadValue].
func (c RulesChange) checkFor(o Order) error {
	if d := o.Domain(); d != "" && c.Limit != nil {
		return fmt.Errorf("%w: an opaque tag has no limit of its own: it ends with its domain %s, at %d",
			ErrBadValue, d, d.Last())
	}
	return nil
}

// After returns the rules of a tag that is created, where old are those of a deleted tag of that name. Generators may
// remember those.
func (r Rules) After(old Rules) Rules {
	if old.Version > 0 {
		r.Version = max(r.Version, old.Version+1)
	}
	return r
}

// checkFor reports whether the rules fit a tag of this order. The error matches [ErrBadValue].
func (r Rules) checkFor(o Order) error {
	if o == Strict && r.Outlast != 0 {
		return fmt.Errorf("%w: a strict tag has no outlast, because it keeps no IDs in memory", ErrBadValue)
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
