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
	taken   spans   // twice: the IDs that came once more
	answers history // order: the answers that ended at From or later; they must be in order among themselves
}

// Excuse forgives. With "twice", each ID may come once more for each excuse. With "order", the answers that ended
// before From may have higher IDs; those that ended later still count.
func (j *Judge) Excuse(e Excuse) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e.IDs == (bus.Range{}) {
		e.IDs = bus.Range{First: 1, Last: math.MaxInt64}
	}
	t, x := j.tag(e.Tag), &excuse{Excused: Excused{Excuse: e}}
	if e.Check == order {
		for _, c := range j.recent {
			if c.Tag == e.Tag {
				x.answered(j.since(c.Ended), c.Ended, c.Ranges)
			}
		}
	}
	t.excuses, j.excuses = append(t.excuses, x), append(j.excuses, x)
}

func (x *excuse) answered(ended time.Duration, at time.Time, ranges []bus.Range) {
	if x.Check != order || at.Before(x.From) {
		return
	}
	for _, r := range ranges {
		x.answers.add(ended, r.Last)
	}
}

// Excused returns all excuses, as they were declared.
func (j *Judge) Excused() (all []Excused) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, x := range j.excuses {
		all = append(all, x.Excused)
	}
	return all
}

// forgive returns those of the IDs that broke a promise which no excuse covers. Still, if it is not nil, returns
// the IDs that an excuse for this check and these IDs does not cover all the same.
func (t *tag) forgive(
	check string, at time.Time, ids bus.Range, still func(*excuse, bus.Range) []bus.Range,
) []bus.Range {
	left := []bus.Range{ids}
	for _, x := range t.excuses {
		if x.Check != check || at.Before(x.From) || !x.Until.IsZero() && at.After(x.Until) {
			continue
		}
		var after []bus.Range
		for _, r := range left {
			common := bus.Range{First: max(r.First, x.IDs.First), Last: min(r.Last, x.IDs.Last)}
			if common.First > common.Last {
				after = append(after, r)
				continue
			}
			if r.First < common.First {
				after = append(after, bus.Range{First: r.First, Last: common.First - 1})
			}
			var refused []bus.Range
			if still != nil {
				refused = still(x, common)
			}
			if len(refused) == 0 || refused[0] != common {
				x.Used++
			}
			after = append(after, refused...)
			if common.Last < r.Last {
				after = append(after, bus.Range{First: common.Last + 1, Last: r.Last})
			}
		}
		left = after
	}
	return left
}
