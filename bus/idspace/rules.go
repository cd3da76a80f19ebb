package idspace

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrBadValue is matched by the errors about a value that a rule or a tag cannot have.
var ErrBadValue = errors.New("illegal value")

// RulesChange says what changes of the rules of a tag: the fields that are not nil. A zero removes
// the rule.
type RulesChange struct {
	Quota   *Quota    `json:"quota,omitempty" yaml:"quota,omitempty,flow"`
	Paused  *bool     `json:"paused,omitempty" yaml:"paused,omitempty"`
	Outlast *Duration `json:"outlast,omitempty" yaml:"outlast,omitempty"`
	Limit   *Limit    `json:"limit,omitempty" yaml:"limit,omitempty"`
}

// Limit is the largest ID of a tag in JSON: a string, or a bare whole number.
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

// Quota is a token bucket of IDs.
type Quota struct {
	PerSecond int64 `json:"per_second" yaml:"per_second"` // at least 1; 0: there is no quota
	Burst     int64 `json:"burst" yaml:"burst"`           // IDs that may come at once after a pause; at least 1
}

// ParseQuota reads 1000/s, 1000, none or 0. The error matches [ErrBadValue].
func ParseQuota(text string) (q Quota, err error) {
	if q.PerSecond, err = parseRule("quota", strings.TrimSuffix(text, "/s")); err != nil {
		return q, fmt.Errorf("%w: the quota %s is no number of IDs a second, such as 1000/s, or none", ErrBadValue,
			Quote(text))
	}
	return q.Complete()
}

// Complete returns the quota with a burst: without one it is what may come in a second. The error
// matches [ErrBadValue].
func (q Quota) Complete() (Quota, error) {
	asked := q.Burst
	if q.Burst == 0 {
		q.Burst = q.PerSecond
	}
	if min(q.PerSecond, q.Burst) < 0 || max(q.PerSecond, q.Burst) > LimitQuota || q.PerSecond == 0 && q.Burst > 0 {
		return q, fmt.Errorf("%w: a quota of %d IDs a second, in bursts of %d: both must be from 1 to %d",
			ErrBadValue, q.PerSecond, asked, int64(LimitQuota))
	}
	return q, nil
}

// UnmarshalYAML reads the fields of a quota, or what ParseQuota reads. The interface is that of the
// yaml packages.
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

// parseRule reads a whole number, or none. The generators know its bounds.
func parseRule(rule, text string) (int64, error) {
	if text == noRule {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: the %s %s is not a whole number, or none", ErrBadValue, rule, Quote(text))
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
