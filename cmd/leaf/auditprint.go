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
	"github.com/leafbus/leafbus/bus/idspace"
	"github.com/leafbus/leafbus/internal/cli"
)

// printAudit writes the tags, the workers, the contradictions, and a last line that sums up.
func printAudit(to io.Writer, r *audit.Report) error {
	w := bufio.NewWriter(to) // Flush returns its first error
	var tags, workers [][]string
	for _, t := range r.Tags {
		row := []string{t.Tag, orNone(int64(t.End))}
		for _, n := range []int64{t.Events, t.Reported, t.Unreported} {
			text := strconv.FormatInt(n, 10)
			if t.Order == idspace.OrderStrict && t.Events == 0 {
				text = "-" // it has no refill events, so none is missing
			}
			row = append(row, text)
		}
		tags = append(tags, append(row, timeOrNone(t.Since)))
	}
	for _, a := range r.Workers {
		state := "no record"
		if a.Node != "" {
			state = stateOf(a.Worker)
		}
		workers = append(workers, []string{strconv.FormatInt(a.Worker.Worker, 10), cmp.Or(a.Node, "-"),
			timeOrNone(a.ReservedUntil), state})
	}
	if len(tags) > 0 {
		_ = cli.PrintTable(w, []string{"TAG", "CLAIMED BELOW", "EVENTS", "REPORTED", "UNREPORTED", "SINCE"},
			tags)
	}
	if len(workers) > 0 {
		_ = cli.PrintTable(w, []string{"WORKER", "HOLDER", "MAY ISSUE UNTIL", "STATE"}, workers)
	}
	for _, c := range r.Contradictions {
		about := strings.TrimSuffix(string(c.Kind)+" "+c.Tag, " ")
		fmt.Fprintln(w, cli.Safe(fmt.Sprintf("CONTRADICTION %s: %s", about, cmp.Or(c.Message, "no message"))))
	}
	fmt.Fprintln(w, summary(r))
	return w.Flush()
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

func orNone(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func timeOrNone(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return cli.Time(t)
}

// unknownTag is the error that a generator answers, for commands that ask none.
func unknownTag(tag string) error {
	return &bus.Error{Code: 404, Reason: bus.UnknownTag, Message: tag + ": unknown tag"}
}
