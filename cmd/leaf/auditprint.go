package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/audit"
	"github.com/leafbus/leafbus/internal/cli"
)

const (
	// mostPrinted is how many contradictions are printed. With --json the result has all.
	mostPrinted = 1000
	// mostShares is how many generators of a tag are printed.
	mostShares = 5
)

// printAudit writes the tags, the workers, the contradictions, and a last line that sums up.
func printAudit(to io.Writer, r *audit.Report) error {
	w := bufio.NewWriter(to) // Flush returns its first error
	if len(r.Tags) > 0 {
		printTagAudits(w, r.Tags)
	}
	if len(r.Tags) == 1 {
		printLastClaim(w, r.Tags[0])
	}
	if len(r.Workers) > 0 {
		printWorkerAudits(w, r.Workers)
	}
	for _, c := range r.Contradictions[:min(len(r.Contradictions), mostPrinted)] {
		fmt.Fprintln(w, contradictionLine(c))
	}
	if more := len(r.Contradictions) - mostPrinted; more > 0 {
		fmt.Fprintf(w, "and %d more (--json lists all)\n", more)
	}
	fmt.Fprintln(w, summary(r))
	return w.Flush()
}

func printTagAudits(w *bufio.Writer, tags []audit.TagAudit) {
	rows := make([][]string, len(tags))
	for i, t := range tags {
		rows[i] = []string{t.Tag, idOrNone(t.End)}
		for _, n := range []int64{t.Events, t.Reported, t.Unreported} {
			text := strconv.FormatInt(n, 10)
			if t.Order == bus.OrderStrict && t.Events == 0 {
				text = "-" // it has no refill events, so none is missing
			}
			rows[i] = append(rows[i], text)
		}
		rows[i] = append(rows[i], generatorsOf(t), timeOrNone(t.Since))
	}
	_ = cli.PrintTable(w, []string{
		"TAG", "CLAIMED BELOW", "EVENTS", "REPORTED", "UNREPORTED", "GENERATORS", "SINCE",
	}, rows)
}

// printLastClaim writes more about the only tag of an audit.
func printLastClaim(w *bufio.Writer, t audit.TagAudit) {
	var rows [][]string
	if l := t.Last; l != nil {
		rows = append(rows, []string{"last claim",
			fmt.Sprintf("%d-%d, by %s at %s", l.First, l.Last, l.Node, cli.TimeMS(l.Time))})
	}
	if t.Events > 0 {
		rows = append(rows, []string{"events", fmt.Sprintf("from ID %d on, first at %s", t.From, cli.TimeMS(t.Since))})
	}
	for _, s := range t.Shares {
		rows = append(rows, []string{"generator",
			fmt.Sprintf("%s claimed %d IDs in %s", s.Node, s.IDs, cli.Counted(s.Refills, "range"))})
	}
	if len(rows) > 0 {
		_ = cli.PrintTable(w, rows[0], rows[1:])
	}
}

func printWorkerAudits(w *bufio.Writer, workers []audit.WorkerAudit) {
	rows := make([][]string, len(workers))
	for i, a := range workers {
		state := "no record"
		if a.Node != "" {
			state = stateOf(a.Worker)
		}
		rows[i] = []string{strconv.FormatInt(a.Worker.Worker, 10), cmp.Or(a.Node, "-"), timeOrNone(a.ReservedUntil), state}
	}
	_ = cli.PrintTable(w, []string{"WORKER", "HOLDER", "MAY ISSUE UNTIL", "STATE"}, rows)
}

// summary is the last line: what was compared, and whether it agrees.
func summary(r *audit.Report) string {
	text := "no events"
	if r.Events > 0 {
		text = fmt.Sprintf("%s since %s", cli.Counted(r.Events, "event"), cli.Time(r.Since))
	}
	text += ", " + cli.Counted(len(r.Tags), "tag")
	if len(r.Workers) > 0 {
		text += ", " + cli.Counted(len(r.Workers), "worker")
	}
	if t := r.Taken; t != nil {
		text += fmt.Sprintf(", %d IDs taken (%d again, %d never claimed)", t.IDs, t.Repeated, t.Unclaimed)
	}
	if n := len(r.Contradictions); n > 0 {
		return text + ": " + strings.ToUpper(cli.Counted(n, "contradiction"))
	}
	return text + ": no contradiction"
}

// generatorsOf says which generators claimed IDs of a tag. Of a strict tag only the last one is recorded.
func generatorsOf(t audit.TagAudit) string {
	if t.Order != bus.OrderStrict {
		return sharesOf(t.Shares)
	}
	text := "strict"
	if t.Last != nil {
		text += ", last by " + t.Last.Node
	}
	if len(t.Shares) > 0 { // an event that should not be there
		text += "; by events " + sharesOf(t.Shares)
	}
	return text
}

// sharesOf says which generators claimed what share of the reported IDs.
func sharesOf(shares []audit.Share) string {
	total := 0.0
	for _, s := range shares {
		total += float64(s.IDs)
	}
	var each []string
	for i, s := range shares {
		if i == mostShares {
			each = append(each, fmt.Sprintf("%d more", len(shares)-i))
			break
		}
		each = append(each, fmt.Sprintf("%s %.0f %%", s.Node, float64(s.IDs)/total*100))
	}
	return cmp.Or(strings.Join(each, ", "), "-")
}

func idOrNone(id bus.ID) string {
	if id == 0 {
		return "-"
	}
	return strconv.FormatInt(int64(id), 10)
}

func timeOrNone(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return cli.Time(t)
}

// whatToDo is for those kinds of contradictions of which the message does not say it.
var whatToDo = map[audit.ContradictionKind]string{
	audit.Overlap: "if no event is forged, search your data for the IDs that were claimed twice, then run `leaf " +
		"tag advance TAG`",
	audit.Unclaimed:      "if the event is not forged, stop callers of the tag and run `leaf tag advance TAG`",
	audit.DamagedEvent:   "find out who may publish to leaf.events.>",
	audit.TwoHolders:     "if no event is forged, stop one of the two generators now",
	audit.TakenTwice:     "check that the file has each ID of this installation once",
	audit.TakenUnclaimed: "check that the file has IDs of this tag and this installation",
}

// advice says what to do about each kind of contradiction, one a line.
func advice(all []audit.Contradiction) (text string) {
	named := make(map[audit.ContradictionKind]bool)
	for _, c := range all {
		if do := whatToDo[c.Kind]; do != "" && !named[c.Kind] {
			text += fmt.Sprintf("\n%s: %s", c.Kind, do)
		}
		named[c.Kind] = true
	}
	return text + "\ndocs/operate.md#audit says more."
}
