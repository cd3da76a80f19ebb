package main

import (
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
)

// at is some moment, in the time zone of whoever looks.
func at(second int) time.Time { return time.Date(2026, 1, 2, 3, 4, second, 0, time.Local) }

func orderAudit() bus.TagAudit {
	last := allocator.Claim{First: 9001, Last: 10000, Node: "n1", Time: at(7)}
	return bus.TagAudit{
		TagClaims: bus.TagClaims{Tag: "order", End: 10001, MaxID: 10001, Last: &last},
		Events:    5, Since: at(1), From: 1001, Reported: 5000, Lost: 2000, Gaps: 2, Skipped: 30, Unreported: 400,
		Shares: []bus.Share{{Node: "n1", Refills: 3, IDs: 3000}, {Node: "n2", Refills: 1, IDs: 2000}},
	}
}

func printed(t *testing.T, r *audit.Report) string {
	t.Helper()
	var text strings.Builder
	if err := printAudit(&text, r); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func TestPrintAudit(t *testing.T) {
	worker, last := int64(8), allocator.Claim{First: 91, Last: 100, Node: "n1", Time: at(7)}
	// A strict tag has no refill events: nothing of it is lost, and only its last claim is known.
	invoice := bus.TagAudit{TagClaims: bus.TagClaims{Tag: "invoice", Order: bus.OrderStrict, End: 101, MaxID: 101, Last: &last}}
	r := &audit.Report{
		Events: 12, Since: at(0),
		Tags: []bus.TagAudit{orderAudit(), {TagClaims: bus.TagClaims{Tag: "unused"}}, invoice},
		Workers: []bus.WorkerAudit{
			{Worker: bus.Worker{Worker: 7, Node: "n\x1b1", Running: true, ReservedUntil: at(9)}}, {Worker: bus.Worker{Worker: 8}},
		},
		Contradictions: []bus.Contradiction{
			{Kind: bus.Overlap, Tag: "order", Message: "one\nand \x1b[31mtwo"},
			{Kind: bus.TwoHolders, Worker: &worker, Message: "worker 8: two"},
		},
		Taken:           &audit.TakenReport{IDs: 100, Repeated: 3, Unclaimed: 2, Unreported: 1},
		TakenSnowflakes: &audit.TakenReport{IDs: 7, Unreported: 6},
	}
	want := `TAG      CLAIMED BELOW  MAX_ID  EVENTS  REPORTED  LOST  SKIPPED  UNREPORTED  GENERATORS          SINCE
order    10001          10001   5       5000      2000  30       400         n1 60 %, n2 40 %    2026-01-02T03:04:01Z
unused   -              -       0       0         0     0        0           -                   -
invoice  101            101     -       -         -     -        -           strict, last by n1  -
WORKER  HOLDER  MAY ISSUE UNTIL       STATE
7       n 1     2026-01-02T03:04:09Z  running
8       -       -                     no record
CONTRADICTION overlap order: one and  [31mtwo
CONTRADICTION two_holders: worker 8: two
12 events since 2026-01-02T03:04:00Z, 3 tags, 2 workers, 100 IDs taken (3 again, 2 never claimed, 1 in no event), 7 snowflakes taken (0 again, 0 never claimed, 6 in no event): 2 CONTRADICTIONS
`
	if got := printed(t, r); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if wantsEvents(invoice) || !wantsEvents(orderAudit()) {
		t.Error("a strict tag alone must not warn of missing events")
	}
}
