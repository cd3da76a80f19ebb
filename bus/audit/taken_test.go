package audit

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/bus/events"
)

func TestTakenIsRead(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("1", 100_000)
	for _, c := range []struct{ name, text, tag, want, err string }{
		{"as leaf get prints", "1-10\n11\n20-30\n", "order", "order [1-11 20-30]", ""},
		{"all IDs", "1-9223372036854775807\n", "order", "order [1-9223372036854775807]", ""},
		{"no tag", "a 1-2\n3-4\n", "", "", "line 2: it names no tag"},
		{"a comment", "a 1-2\n\n# mine\n", "", "", `line 3: "mine" is no range`},
		{"a bad tag", "a* 1-2\n", "", "", "line 1: "},
		{"too large", "1-9223372036854775808\n", "order", "", "line 1: "},
		{"three words", "a 1-2 3\n", "order", "", `line 1: "a 1-2 3" is no range`},
		{"a long line", "1-2\n" + long + "\n", "order", "", "line 2: bufio.Scanner: token too long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var taken Taken
			err := taken.Read(strings.NewReader(c.text), c.tag)
			if c.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), c.err) || len(err.Error()) > 300 {
					t.Errorf("error %v, want %s", err, c.err)
				}
				return
			}
			if err != nil || taken.text() != c.want {
				t.Errorf("%q, %v; want %q", taken.text(), err, c.want)
			}
		})
	}
}

// text is what was taken.
func (t *Taken) text() string {
	var all []string
	for _, tag := range t.names() {
		all = append(all, fmt.Sprintf("%s %v", tag, t.tags[tag].Finish()))
	}
	return strings.Join(all, " ")
}

// What was taken is compared with the claims of its tags, whichever tags are audited.
func TestTakenIsCompared(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text   string
		want   string // of the tag order
		report TakenReport
	}{
		"all is well":         {"order 1-5\norder 6-10\nshop 1-9\n", "", TakenReport{IDs: 19, Unreported: 9}},
		"twice":               {"order 1-5\norder 5-10\n", "taken_twice 5-5: order, 5 of", TakenReport{IDs: 10, Repeated: 1}},
		"never claimed":       {"order 15-25\n", "taken_unclaimed 21-25: 21-25 was taken, end below 21", TakenReport{IDs: 11, Unclaimed: 5, Unreported: 6}},
		"twice and unclaimed": {"order 21\norder 21\n", "taken_twice 21-21: 21; taken_unclaimed 21-21: 21", TakenReport{IDs: 1, Repeated: 1, Unclaimed: 1}},
		"an unknown tag":      {"nosuch 1-5\n", "", TakenReport{IDs: 5, Unclaimed: 5}},
		"a damaged record":    {"broken 1-5\n", "", TakenReport{IDs: 5, Unreported: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEvidence(t)
			e.refill("order", "a", 1, 10, 1)
			e.claimed("order", 21, nil)
			e.claimed("shop", 10, nil)
			e.claims["broken"] = admin.TagClaims{MaxID: 1, Problem: "garbage"}
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

// Of many contradictions some of each kind are named, and all are counted. Counts of huge ranges stop at the highest
// number.
// If the record of an opaque tag is lost, its IDs have no numbers. The other tags are audited all the same.
func TestTakenOfALostOpaqueTag(t *testing.T) {
	t.Parallel()
	e := newEvidence(t)
	e.claims["gift"] = admin.TagClaims{End: 9, Opaque: "53"}
	e.claimed("order", 9, nil)
	source, taken := e.source(), new(Taken)
	source.Reveal = func(context.Context, admin.RevealRequest) (admin.Revealed, error) {
		return admin.Revealed{}, &bus.Error{Code: 404, Reason: bus.UnknownTag}
	}
	if err := taken.Read(strings.NewReader("gift 77\norder 9\n"), ""); err != nil {
		t.Fatal(err)
	}
	report, err := Run(t.Context(), source, Options{Taken: taken})
	if err != nil || report.Taken.Unclaimed != 2 {
		t.Errorf("%+v, %v; want two IDs that were never claimed", report.Taken, err)
	}
}

func TestTakenCountsAreBounded(t *testing.T) {
	t.Parallel()
	var taken Taken
	for i := range int64(500) {
		taken.Add("order", bus.Range{First: 1 + 2*i, Last: 1 + 2*i})
	}
	taken.Add("order", bus.Range{First: 7, Last: 7})
	var report TakenReport
	found := report.compare("order", taken.tags["order"], 1, nil)
	if len(found) != mostContradictions || kinds(found, "order") != "[taken_twice taken_unclaimed]" || report != (TakenReport{IDs: 500, Repeated: 1, Unclaimed: 500}) {
		t.Errorf("%d contradictions of kinds %s, %+v", len(found), kinds(found, "order"), report)
	}
	const most = math.MaxInt64
	var trail tagTrail
	var huge TakenReport
	for _, tag := range []string{"a", "b"} {
		for range 2 {
			taken.Add(tag, bus.Range{First: 1, Last: most})
			trail.refill(eventTime(1), events.Refill{Node: "forger", First: 1, Last: most})
		}
		huge.compare(tag, taken.tags[tag], 1, nil)
	}
	a, _ := trail.audit("kv", admin.TagClaims{Tag: "a", End: most})
	if huge != (TakenReport{IDs: most, Repeated: most, Unclaimed: most}) || a.Reported != most || a.Shares[0].IDs != most {
		t.Errorf("%+v, %+v", huge, a)
	}
}
