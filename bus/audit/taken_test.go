package audit

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
)

// What was taken is compared with the claims of its tags, whichever tags are audited.
func TestTakenIsCompared(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text   string
		want   string // of the tag order
		report TakenReport
	}{
		"all is well":         {"order 1-5\norder 6-10\nshop 1-9\n", "", TakenReport{IDs: 19}},
		"twice":               {"order 1-5\norder 5-10\n", "taken_twice 5-5: order, 5 of", TakenReport{IDs: 10, Repeated: 1}},
		"never claimed":       {"order 15-25\n", "taken_unclaimed 21-25: 21-25 was taken, end below 21", TakenReport{IDs: 11, Unclaimed: 5}},
		"twice and unclaimed": {"order 21\norder 21\n", "taken_twice 21-21: 21; taken_unclaimed 21-21: 21", TakenReport{IDs: 1, Repeated: 1, Unclaimed: 1}},
		"an unknown tag":      {"nosuch 1-5\n", "", TakenReport{IDs: 5, Unclaimed: 5}},
		"a damaged record":    {"broken 1-5\n", "", TakenReport{IDs: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEvidence(t)
			e.refill("order", "a", 1, 10, 1)
			e.claimed("order", 21, nil)
			e.claimed("shop", 10, nil)
			e.records["broken"] = Record{Problem: "garbage"}
			for _, tags := range [][]string{nil, {"order"}} {
				var taken Taken
				if err := taken.Read(strings.NewReader(c.text), ""); err != nil {
					t.Fatal(err)
				}
				report := e.audit(&taken, tags...)
				var found []Contradiction
				for _, c := range report.Contradictions {
					if c.Tag == "order" {
						found = append(found, c)
					}
				}
				e.want(found, c.want)
				if *report.Taken != c.report {
					t.Errorf("%v: %+v, want %+v", tags, *report.Taken, c.report)
				}
				if name == "an unknown tag" && kinds(report.Contradictions, "nosuch") != "[taken_unclaimed]" {
					t.Errorf("%+v", report.Contradictions)
				}
			}
		})
	}
}

// The IDs of an opaque tag are compared by their numbers. What is above its domain is no ID.
func TestTakenOfAnOpaqueTag(t *testing.T) {
	t.Parallel()
	e := newEvidence(t)
	e.records["gift"] = Record{End: 9, Opaque: "53"}
	source, taken := e.source(), new(Taken)
	source.Reveal = func(_ context.Context, _ string, ids ...bus.ID) (numbers []bus.ID, err error) {
		if len(ids) > admin.MostRevealed {
			t.Errorf("%d IDs in one request", len(ids))
		}
		for _, id := range ids {
			numbers = append(numbers, id-1000)
		}
		return numbers, nil
	}
	taken.Add("gift", bus.Range{First: 1001, Last: 1010}, bus.Range{First: 1001, Last: 1001}, bus.Range{First: 1 << 53, Last: 1 << 53})
	report, err := Run(t.Context(), source, Options{Taken: taken})
	if err != nil || *report.Taken != (TakenReport{IDs: 11, Repeated: 1, Unclaimed: 3}) {
		t.Errorf("%+v, %v", report.Taken, err)
	}
	source.Reveal = func(context.Context, string, ...bus.ID) ([]bus.ID, error) { return nil, bus.BadRequest }
	if _, err := Run(t.Context(), source, Options{Taken: taken}); !errors.Is(err, bus.BadRequest) {
		t.Errorf("IDs that cannot be revealed are compared: %v", err)
	}
}

// Of many contradictions some of each kind are named, and all are counted. Counts of huge ranges stop at the highest
// number.
func TestTakenCountsAreBounded(t *testing.T) {
	t.Parallel()
	var runs Runs
	for i := range int64(500) {
		runs.Add(bus.Range{First: 1 + 2*i, Last: 1 + 2*i})
	}
	runs.Add(bus.Range{First: 7, Last: 7})
	compare := func(report *TakenReport, taken *Runs) []Contradiction {
		all, repeated, some := taken.Finish()
		return report.compare("order", all, 1, repeated, some)
	}
	var report, huge TakenReport
	found := compare(&report, &runs)
	if len(found) != mostContradictions || kinds(found, "order") != "[taken_twice taken_unclaimed]" ||
		report != (TakenReport{IDs: 500, Repeated: 1, Unclaimed: 500}) {
		t.Errorf("%d contradictions of kinds %s, %+v", len(found), kinds(found, "order"), report)
	}
	const most = math.MaxInt64
	for range 2 {
		var all Runs
		all.Add(bus.Range{First: 1, Last: most}, bus.Range{First: 1, Last: most})
		compare(&huge, &all)
	}
	if huge != (TakenReport{IDs: most, Repeated: most, Unclaimed: most}) {
		t.Errorf("%+v", huge)
	}
}
