package audit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/wire"
)

// Taken are IDs that callers got, to be compared with what was claimed. Its zero value has none. It
// is safe for concurrent use.
type Taken struct {
	mu   sync.Mutex
	tags map[string]*Runs
}

// Add adds IDs of a tag that a caller got.
func (t *Taken) Add(tag string, ids ...bus.Range) { t.of(tag).Add(ids...) }

func (t *Taken) of(tag string) *Runs {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tags == nil {
		t.tags = make(map[string]*Runs)
	}
	if t.tags[tag] == nil {
		t.tags[tag] = &Runs{}
	}
	return t.tags[tag]
}

// names are the tags.
func (t *Taken) names() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.tags))
}

// Read adds the IDs of a text: ranges, one a line, as first-last or a single ID, as `leaf get
// --ranges` prints them. A tag and white space may stand before a range. Lines without one are of
// tag; if that is empty, they are an error. Empty lines are skipped. An error names the line; lines
// before it may have been added.
func (t *Taken) Read(r io.Reader, tag string) error {
	lines := bufio.NewScanner(r)
	n := 1
	for ; lines.Scan(); n++ {
		name, text := tag, strings.TrimSpace(lines.Text())
		if words := strings.Fields(text); len(words) == 2 {
			name, text = words[0], words[1]
		}
		if text == "" {
			continue
		}
		if first, last, _ := strings.Cut(text, "-"); first == last {
			text = first // a range of one ID, which replies have without its end
		}
		ids, err := wire.ParseReply([]byte(text))
		switch {
		case err != nil:
			err = fmt.Errorf("%s is no range of IDs: write first-last, or one ID", idspace.Quote(text))
		case name == "":
			err = errors.New("it names no tag: write the tag and a space before the range, or name one tag to audit")
		default:
			err = idspace.CheckTag(name)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		t.Add(name, ids...)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("line %d: %w", n, err)
	}
	return nil
}

// compareTaken compares what was taken with the end of all claims of each tag.
func (a *auditor) compareTaken(ctx context.Context) error {
	a.report.Taken = &TakenReport{}
	for _, tag := range a.Taken.names() {
		record := a.tags[tag].record
		runs, repeated, some := a.Taken.of(tag).Finish()
		end := int64(record.End)
		switch {
		case record.Problem != "":
			end = math.MaxInt64 // not known
		case record.Opaque != "":
			numbers, err := a.reveal(ctx, tag, opaque.Domain(record.Opaque), runs)
			if err != nil {
				return err
			}
			runs, _, _ = numbers.Finish()
		}
		found := a.report.Taken.compare(tag, runs, end, repeated, some)
		for i := range found {
			if record.Opaque != "" && found[i].Kind == TakenUnclaimed {
				found[i].Message += ". These are numbers of an opaque tag: `leaf tag reveal` shows those of IDs"
			}
		}
		a.report.Contradictions = append(a.report.Contradictions, found...)
	}
	return nil
}

// compare compares what was taken of a tag with the end of what is claimed. repeated IDs came
// again, some of them are in some.
func (t *TakenReport) compare(
	tag string, runs []bus.Range, end, repeated int64, some []bus.Range,
) (found []Contradiction) {
	t.Repeated = plus(t.Repeated, repeated)
	for _, r := range some {
		found = append(found, about(TakenTwice, tag, r, "%v of %s was taken twice", r, tag))
	}
	claimed := fmt.Sprintf("all claims of %s end below %d", tag, end)
	if end <= 1 {
		claimed = tag + " has no claims"
	}
	for _, r := range runs {
		t.IDs = plus(t.IDs, r.Len())
		if r.Last < end {
			continue
		}
		above := bus.Range{First: max(r.First, end), Last: r.Last}
		t.Unclaimed = plus(t.Unclaimed, above.Len())
		if len(found) < mostContradictions {
			found = append(found, about(TakenUnclaimed, tag, above, "%v was taken and never claimed: %s", above, claimed))
		}
	}
	return found
}

// reveal returns the numbers of IDs of an opaque tag: all claims are of numbers. What is above the
// domain is no ID, and stays as it is, because nothing there was claimed.
func (a *auditor) reveal(ctx context.Context, tag string, domain opaque.Domain, runs []bus.Range) (*Runs, error) {
	numbers, last := new(Runs), domain.Last()
	var ids []bus.ID
	for _, r := range runs {
		if r.Last > last {
			numbers.Add(bus.Range{First: max(r.First, last+1), Last: r.Last})
			r.Last = last
		}
		for id := r.First; id >= r.First && id <= r.Last; id++ { // until it overflows, too
			ids = append(ids, bus.ID(id))
		}
	}
	for batch := range slices.Chunk(ids, admin.MostRevealed) {
		revealed, err := a.Reveal(ctx, tag, batch...)
		if err != nil {
			return nil, err
		}
		for _, n := range revealed {
			numbers.Add(bus.Range{First: int64(n), Last: int64(n)})
		}
	}
	return numbers, nil
}
