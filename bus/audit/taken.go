package audit

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/internal/wire"
)

// Taken are IDs that callers got, to be compared with what was claimed. Its zero value has none. It is safe for
// concurrent use.
type Taken struct {
	mu   sync.Mutex
	tags map[string]*Runs
}

// Add adds IDs of a tag that a caller got.
func (t *Taken) Add(tag string, ids ...bus.Range) {
	t.mu.Lock()
	if t.tags == nil {
		t.tags = make(map[string]*Runs)
	}
	runs := t.tags[tag]
	if runs == nil {
		runs = &Runs{}
		t.tags[tag] = runs
	}
	t.mu.Unlock()
	runs.Add(slices.Clone(ids)...)
}

// takenAtOnce is how many lines are added together: that is faster.
const takenAtOnce = 4096

// names are the tags.
func (t *Taken) names() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.tags))
}

// above reports whether there are IDs of a tag from end on.
func (t *Taken) above(tag string, end int64) bool {
	if t == nil || t.tags[tag] == nil {
		return false
	}
	runs := t.tags[tag].Finish()
	return len(runs) > 0 && runs[len(runs)-1].Last >= end
}

// Read adds the IDs of a text: ranges, one a line, as first-last or a single ID, as `leaf get --ranges` prints them. A
// tag and white space may stand before a range. Lines without one are of tag; if that is empty, they are an error.
// Empty lines are skipped. An error names the line; lines before it may have been added.
func (t *Taken) Read(r io.Reader, tag string) error {
	return readRanges(r, func(name string) error {
		if name = cmp.Or(name, tag); name == "" {
			return errors.New("it names no tag: write the tag and a space before the range, or name one tag to audit")
		}
		return allocator.CheckTag(name)
	}, func(name string, ids []bus.Range) { t.Add(cmp.Or(name, tag), ids...) })
}

// Read adds the IDs of a text: ranges, one a line, as first-last or a single ID. Empty lines are skipped. An error
// names the line; lines before it may have been added.
func (s *Runs) Read(r io.Reader) error {
	return readRanges(r, func(name string) error {
		if name != "" {
			return fmt.Errorf("%s stands before the range: snowflakes have no tag", wire.Quote([]byte(name)))
		}
		return nil
	}, func(_ string, ids []bus.Range) { s.Add(ids...) })
}

// readRanges calls add with ranges of a text, many at a time, and the name that stands before them or "". check says
// what is wrong with a name.
func readRanges(r io.Reader, check func(name string) error, add func(name string, ids []bus.Range)) error {
	lines := bufio.NewScanner(r)
	batches := make(map[string][]bus.Range) // by name
	n := 1
	for ; lines.Scan(); n++ {
		name, text := "", strings.TrimSpace(lines.Text())
		if words := strings.Fields(text); len(words) == 2 {
			name, text = words[0], words[1]
		}
		if text == "" {
			continue
		}
		ids, err := parseRange(text)
		if err == nil {
			err = check(name)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if batches[name] = allocator.AppendRange(batches[name], ids); len(batches[name]) >= takenAtOnce {
			add(name, batches[name])
			batches[name] = batches[name][:0]
		}
	}
	for name, batch := range batches {
		add(name, batch)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("line %d: %w", n, err)
	}
	return nil
}

// parseRange reads first-last or a single ID.
func parseRange(text string) (bus.Range, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	f, okFirst := wire.ParseID([]byte(first))
	l, okLast := wire.ParseID([]byte(last))
	if !okFirst || !okLast || l < f {
		return bus.Range{}, fmt.Errorf("%s is no range of IDs: write first-last, or one ID", wire.Quote([]byte(text)))
	}
	return bus.Range{First: f, Last: l}, nil
}

// TakenReport says what became of the IDs that callers got.
type TakenReport struct {
	IDs       int64 `json:"ids,string"`       // different ones
	Repeated  int64 `json:"repeated,string"`  // how often an ID came that was there already
	Unclaimed int64 `json:"unclaimed,string"` // how many were never claimed
	// Unreported is how many are claimed, and no event reports them: it is gone, or was lost. IDs of strict tags do not
	// count, because no event reports any of them.
	Unreported int64 `json:"unreported,string"`
}

// compareTaken compares what was taken with what is claimed, and with what events report.
func (a *auditor) compareTaken() {
	a.report.Taken = &TakenReport{}
	audits := make(map[string]TagAudit)
	for _, t := range a.report.Tags {
		audits[t.Tag] = t
	}
	for _, tag := range a.Taken.names() {
		audit := audits[tag]
		end := int64(audit.End)
		if audit.Problem != "" {
			end = math.MaxInt64 // not known
		}
		reported := a.tag(tag).runs.Finish()
		if audit.Order == bus.OrderStrict {
			reported = []bus.Range{{First: 1, Last: math.MaxInt64}} // it has no events, so none is missing
		}
		found := a.report.Taken.compare(tag, a.Taken.tags[tag], end, reported)
		for i := range found {
			if audit.Opaque != "" && found[i].Kind == TakenUnclaimed {
				found[i].Message += ". These are numbers of an opaque tag: `leaf tag reveal` shows those of IDs"
			}
		}
		a.report.Contradictions = append(a.report.Contradictions, found...)
	}
}

// compare compares what was taken of a tag with the end of what is claimed, and with the ranges that events report.
func (t *TakenReport) compare(tag string, taken *Runs, end int64, reported []bus.Range) (found []Contradiction) {
	runs := taken.Finish()
	repeated, some := taken.Repeated()
	t.Repeated = plus(t.Repeated, repeated)
	for _, r := range some {
		found = append(found, Contradiction{Kind: TakenTwice, Tag: tag, First: bus.ID(r.First), Last: bus.ID(r.Last),
			Message: fmt.Sprintf("%v of %s was taken twice", r, tag)})
	}
	for _, r := range runs {
		t.IDs = plus(t.IDs, r.Len())
		if r.First < end {
			claimed := bus.Range{First: r.First, Last: min(r.Last, end-1)}
			t.Unreported = plus(t.Unreported, claimed.Len()-common(claimed, reported))
		}
		if r.Last < end {
			continue
		}
		above := bus.Range{First: max(r.First, end), Last: r.Last}
		t.Unclaimed = plus(t.Unclaimed, above.Len())
		if len(found) < mostContradictions {
			claimed := fmt.Sprintf("all claims of %s end below %d", tag, end)
			if end <= 1 {
				claimed = tag + " has no claims"
			}
			found = append(found, Contradiction{Kind: TakenUnclaimed, Tag: tag, First: bus.ID(above.First), Last: bus.ID(above.Last),
				Message: fmt.Sprintf("%v was taken and never claimed: %s", above, claimed)})
		}
	}
	return found
}

// common is how many IDs of r are in runs, which are sorted and apart.
func common(r bus.Range, runs []bus.Range) (n int64) {
	i, _ := slices.BinarySearchFunc(runs, r.First, func(run bus.Range, first int64) int {
		if run.Last < first {
			return -1
		}
		return 1
	})
	for ; i < len(runs) && runs[i].First <= r.Last; i++ {
		n += min(runs[i].Last, r.Last) - max(runs[i].First, r.First) + 1
	}
	return n
}
