package judge

import (
	"math"
	"time"

	"github.com/leafbus/leafbus/bus"
)

// Excuse is what a fault excludes from one promise. A fault declares it before it begins, as narrow as it can.
type Excuse struct {
	Check       string    // the [Violation] that is forgiven
	Tag         string    // this tag only; empty: snowflakes
	IDs         bus.Range // these IDs only; zero: all
	From, Until time.Time // of [Violation.At]; zero: no bound
	Why         string
}

// Excused is an excuse, and how often it was used.
type Excused struct {
	Excuse
	Used int64
}

// excuse remembers what it has forgiven, so that it forgives no more than it says.
type excuse struct {
	Excused
	from, until time.Duration
	taken       spans   // twice: the IDs that came once more
	answers     history // order: the answers that ended at from or later
}

// Excuse forgives. With "twice", each of the IDs may come once more for each excuse. With "order", only answers that
// ended before From may have higher IDs: those that ended later still count. A call of end sets Until to now.
func (j *Judge) Excuse(e Excuse) (end func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e.IDs == (bus.Range{}) {
		e.IDs = bus.Range{First: 1, Last: math.MaxInt64}
	}
	t, x := j.tag(e.Tag), &excuse{Excused: Excused{Excuse: e}, from: j.since(e.From), until: j.bound(e.Until)}
	for s := range t.from(1) {
		x.answered(s)
	}
	t.excuses, j.excuses = append(t.excuses, x), append(j.excuses, x)
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		x.Until = time.Now()
		x.until = j.since(x.Until)
	}
}

func (x *excuse) answered(s span) {
	if x.Check == order && s.ended >= x.from {
		x.answers.add(s.ended, s.Last)
	}
}

// still returns the IDs of a span that the excuse does not forgive, although they are its IDs.
func (x *excuse) still(s span) []span {
	switch {
	case x.Check == twice:
		return x.taken.add(s)
	case x.Check == order && x.answers.before(s.sent) >= s.First:
		return []span{s}
	}
	return nil
}

// Forgives reports whether an excuse covers a violation that is not about IDs, for checks outside of this package.
func (j *Judge) Forgives(check, tag string, at time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, x := range j.tag(tag).excuses {
		if since := j.since(at); x.Check == check && x.from <= since && since <= x.until {
			x.Used++
			return true
		}
	}
	return false
}

// Excused returns all excuses, in the order in which they were declared.
func (j *Judge) Excused() (all []Excused) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, x := range j.excuses {
		all = append(all, x.Excused)
	}
	return all
}

// forgive returns those IDs of a span that no excuse covers.
func (t *tag) forgive(check string, at time.Duration, s span) []span {
	left := []span{s}
	for _, x := range t.excuses {
		if x.Check != check || at < x.from || at > x.until {
			continue
		}
		var after []span
		for _, s := range left {
			common := s.part(max(s.First, x.IDs.First), min(s.Last, x.IDs.Last))
			if common.First > common.Last {
				after = append(after, s)
				continue
			}
			still := x.still(common)
			if len(still) == 0 || still[0].Range != common.Range {
				x.Used++
			}
			if after = append(after, still...); s.First < common.First {
				after = append(after, s.part(s.First, common.First-1))
			}
			if common.Last < s.Last {
				after = append(after, s.part(common.Last+1, s.Last))
			}
		}
		left = after
	}
	return left
}
