package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
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
	worker := int64(8)
	r := &audit.Report{
		Events: 12, Since: at(0),
		Tags: []bus.TagAudit{orderAudit(), {TagClaims: bus.TagClaims{Tag: "unused"}}},
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
	want := `TAG     CLAIMED BELOW  MAX_ID  EVENTS  REPORTED  LOST  SKIPPED  UNREPORTED  GENERATORS        SINCE
order   10001          10001   5       5000      2000  30       400         n1 60 %, n2 40 %  2026-01-02T03:04:01Z
unused  -              -       0       0         0     0        0           -                 -
WORKER  HOLDER  MAY ISSUE UNTIL       STATE
7       n 1     2026-01-02T03:04:09Z  running
8       -       -                     no record
CONTRADICTION overlap order: one and  [31mtwo
CONTRADICTION two_holders: worker 8: two
12 events since 2026-01-02T03:04:00Z, 2 tags, 2 workers, 100 IDs taken (3 again, 2 never claimed, 1 in no event), 7 snowflakes taken (0 again, 0 never claimed, 6 in no event): 2 CONTRADICTIONS
`
	if got := printed(t, r); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The only tag of an audit is shown with its last claim and its generators.
func TestPrintAuditOfOneTag(t *testing.T) {
	want := `TAG    CLAIMED BELOW  MAX_ID  EVENTS  REPORTED  LOST  SKIPPED  UNREPORTED  GENERATORS        SINCE
order  10001          10001   5       5000      2000  30       400         n1 60 %, n2 40 %  2026-01-02T03:04:01Z
last claim  9001-10000, by n1 at 2026-01-02T03:04:07.000Z
events      from ID 1001 on, first at 2026-01-02T03:04:01.000Z
lost        2000 IDs in 2 ranges
generator   n1 claimed 3000 IDs in 3 ranges
generator   n2 claimed 2000 IDs in 1 range
5 events since 2026-01-02T03:04:01Z, 1 tag: no contradiction
`
	if got := printed(t, &audit.Report{Events: 5, Since: at(1), Tags: []bus.TagAudit{orderAudit()}}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := printed(t, &audit.Report{}); got != "no events, 0 tags: no contradiction\n" {
		t.Errorf("of nothing: %s", got)
	}
}

// A strict tag has no refill events: nothing of it is lost, and only its last claim is known.
func TestPrintAuditOfStrictTag(t *testing.T) {
	last := allocator.Claim{First: 91, Last: 100, Node: "n1", Time: at(7)}
	invoice := bus.TagAudit{TagClaims: bus.TagClaims{Tag: "invoice", Order: bus.OrderStrict, End: 101, MaxID: 101, Last: &last}}
	forged := invoice
	forged.Tag, forged.Last, forged.Events, forged.Reported = "other", nil, 1, 10
	forged.Shares = []bus.Share{{Node: "f", Refills: 1, IDs: 10}}
	want := `TAG      CLAIMED BELOW  MAX_ID  EVENTS  REPORTED  LOST  SKIPPED  UNREPORTED  GENERATORS                 SINCE
invoice  101            101     -       -         -     -        -           strict, last by n1         -
other    101            101     1       10        0     0        0           strict; by events f 100 %  -
no events, 2 tags: no contradiction
`
	if got := printed(t, &audit.Report{Tags: []bus.TagAudit{invoice, forged}}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	got := printed(t, &audit.Report{Tags: []bus.TagAudit{invoice}})
	if !strings.Contains(got, "\nlast claim  91-100, by n1 at 2026-01-02T03:04:07.000Z\n") {
		t.Error(got)
	}
	if wantsEvents(invoice) || !wantsEvents(orderAudit()) {
		t.Error("a strict tag alone must not warn of missing events")
	}
}

// A database that was set back contradicts for every tag. That does not flood the terminal.
func TestPrintManyContradictions(t *testing.T) {
	r := &audit.Report{Contradictions: make([]bus.Contradiction, 100_000)}
	got := printed(t, r)
	if strings.Count(got, "CONTRADICTION :") != mostPrinted || !strings.Contains(got, "\nand 99000 more (--json lists all)\n") || !strings.HasSuffix(got, ": 100000 CONTRADICTIONS\n") {
		t.Errorf("%d lines end with %s", strings.Count(got, "\n"), got[len(got)-200:])
	}
}

// Many restarts make many generators, of which the table has those that claimed most.
func TestPrintManyGenerators(t *testing.T) {
	shares := []bus.Share{{Node: "a", IDs: 995}}
	for _, node := range []string{"b", "c", "d", "e", "f", "g"} {
		shares = append(shares, bus.Share{Node: node, IDs: 1})
	}
	if got := sharesOf(shares); got != "a 99 %, b 0 %, c 0 %, d 0 %, e 0 %, 2 more" {
		t.Error(got)
	}
}

// Mistakes in files are found before the command connects. They have the status of wrong usage, because
// 1 means that there is a contradiction.
func TestAuditRefuses(t *testing.T) {
	cleanEnv(t)
	nowhere := freeAddress(t)
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "ids.txt")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	bare, named := file("1-5\n\n7\n"), file("order 1-5\nshop.a 7\n")
	for _, c := range []struct {
		args   []string
		status int
		stderr string
	}{
		{[]string{"order", "--taken", bare}, 3, "no NATS server"},
		{[]string{"order", "shop.a", "--taken", named}, 3, "no NATS server"},
		{[]string{"--taken", named, "--taken-snowflakes", bare}, 3, "no NATS server"},
		{[]string{"--taken", bare}, 2, "line 1: it names no tag"},
		{[]string{"order", "shop.a", "--taken", bare}, 2, "line 1: it names no tag"},
		{[]string{"order", "--taken", file("1-5\n5-1\n")}, 2, `line 2: "5-1" is no range`},
		{[]string{"order", "--taken", file("0\n")}, 2, "line 1"},
		{[]string{"order", "--taken", file("a*b 1\n")}, 2, "line 1"},
		{[]string{"--taken-snowflakes", named}, 2, "line 1"},
		{[]string{"order", "--taken", filepath.Join(bare, "below")}, 2, "--taken"},
		{[]string{"--taken-snowflakes", filepath.Join(bare, "below")}, 2, "--taken-snowflakes"},
		{[]string{"order", "--taken", "-", "--taken-snowflakes", "-"}, 2, "stdin"},
		{[]string{""}, 2, "TAG is empty"},
		{[]string{"a b"}, 1, "illegal tag"},
		{[]string{"order.>"}, 1, "illegal tag"},
	} {
		status, stdout, stderr := leaf(t, append([]string{"audit", "-s", nowhere}, c.args...)...)
		if status != c.status || !strings.Contains(stderr, c.stderr) || stdout != "" {
			t.Errorf("audit %q: status %d, %q, %s; want %d and %s", c.args, status, stdout, stderr, c.status, c.stderr)
		}
	}
}

// Each stage of an audit begins anew.
func TestProgressOfStages(t *testing.T) {
	var shown strings.Builder
	p := &progress{w: &shown}
	for _, stage := range []string{"events", "tags"} {
		for done := range int64(3) {
			p.last = time.Time{} // long ago
			p.at(stage, done, 4)
		}
	}
	p.last = time.Time{}
	p.at("nothing", 0, 0)
	p.end()
	lines := strings.Split(shown.String(), "\r\x1b[K")
	for i, want := range []string{"", "0 of 4 events (0 %)", "1 of 4 events (25 %)", "2 of 4 events (50 %)", "0 of 4 tags (0 %)", "1 of 4 tags", "2 of 4 tags", "0 of 1 nothing", ""} {
		if len(lines) != 9 || !strings.HasPrefix(lines[i], want) || strings.Contains(lines[i], "NaN") {
			t.Fatalf("shown %q, want line %d to be %q", lines, i, want)
		}
	}
}

// What these flags name is for one command line: no variable or file gives it to every command.
func TestFlagsOfOneCommandLine(t *testing.T) {
	cleanEnv(t)
	for _, command := range []string{"audit", "trace", "bench"} {
		if _, help, _ := leaf(t, command, "--help"); strings.Contains(help, "LEAF_TAKEN") || strings.Contains(help, "LEAF_SNOWFLAKE") || !strings.Contains(help, "LEAF_JSON") {
			t.Errorf("the help of %s has a variable for them:\n%s", command, help)
		}
	}
}

// A signal ends an audit that waits for stdin.
func TestAuditInterruptedAtStdin(t *testing.T) {
	for _, flag := range []string{"--taken", "--taken-snowflakes"} {
		in, open := io.Pipe()
		t.Cleanup(func() { open.Close() })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		root := newRoot()
		root.SetIn(in)
		var stderr strings.Builder
		if status := run(ctx, root, []string{"audit", "order", flag, "-"}, io.Discard, &stderr); status != exitFailed || !strings.Contains(stderr.String(), "interrupted") {
			t.Errorf("%s: exit status %d: %s", flag, status, &stderr)
		}
	}
}
