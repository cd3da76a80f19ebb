package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/leafbus/leafbus/tests/chaos/judge"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// columns are the kinds of callers of the tag order, and all kinds of callers of other IDs.
var columns = []string{
	"raw", "raw JSON", "Next", "Take", "Pool", "bulk", "HTTP", "few in memory", "strict", "opaque", "snowflakes", "other",
}

// kind is the name of a caller for the table: of which IDs, and how it asks.
func kind(c callers.Call) string {
	switch c.Tag {
	case order:
		return c.Kind
	case stock:
		return "few in memory: " + c.Kind
	case invoice:
		return "strict: " + c.Kind
	case coupon:
		return "opaque: " + c.Kind
	case callers.Snowflakes:
		return "snowflakes: " + c.Kind
	}
	return "other: " + c.Kind
}

// table is what callers and operators met, fault by fault.
type table struct {
	rows map[string]*row
}

// row is all strikes of a fault that struck alone, or of faults that overlapped.
type row struct {
	Faults  string             `json:"faults"`
	Strikes int                `json:"strikes"`
	Callers map[string]*met    `json:"callers"`
	Shown   map[string]float64 `json:"shown_after_s"`   // the longest time until it showed, by where
	Hidden  map[string]int     `json:"not_shown"`       // strikes that did not show there
	Settled float64            `json:"settled_after_s"` // the longest time from the end of a fault until all was ready
}

func newRow(name string) *row {
	return &row{Faults: name, Callers: map[string]*met{}, Shown: map[string]float64{}, Hidden: map[string]int{}}
}

// met is what callers met in all strikes of a row.
type met struct {
	Calls   int64            `json:"calls"`
	IDs     int64            `json:"ids"`
	Failed  int64            `json:"failed"`
	Gap     float64          `json:"longest_without_answer_s"` // of all callers of one kind together
	Reasons map[string]int64 `json:"reasons"`
}

// add takes in what others met.
func (x *row) add(more *row) {
	x.Strikes += more.Strikes
	x.Settled = max(x.Settled, more.Settled)
	for kind, m := range more.Callers {
		if x.Callers[kind] == nil {
			x.Callers[kind] = &met{Reasons: make(map[string]int64)}
		}
		sum := x.Callers[kind]
		sum.Calls, sum.IDs, sum.Failed = sum.Calls+m.Calls, sum.IDs+m.IDs, sum.Failed+m.Failed
		sum.Gap = max(sum.Gap, m.Gap)
		for reason, n := range m.Reasons {
			sum.Reasons[reason] += n
		}
	}
	for where, after := range more.Shown {
		x.Shown[where] = max(x.Shown[where], after)
	}
	for where, n := range more.Hidden {
		x.Hidden[where] += n
	}
}

// add returns what was met in a round.
func (t *table) add(w *world, r round) *row {
	began, ended, settled := r[0].began, r[0].ended, r[0].settled
	for _, s := range r {
		if s.began.Before(began) {
			began = s.began
		}
		if s.ended.After(ended) {
			ended = s.ended
		}
	}
	x := newRow(r.names())
	x.Strikes, x.Settled = 1, settled.Sub(ended).Seconds()
	for kind, m := range w.judge.Met(began, settled) {
		column, _, _ := strings.Cut(kind, ": ")
		one := newRow("")
		one.Callers[column] = &met{m.Calls, m.IDs, m.Failed, m.Gap.Seconds(), m.Reasons}
		x.add(one)
	}
	for _, where := range shownAt {
		if after, ok := w.watch.first(where, began, settled); ok {
			x.Shown[where] = after.Seconds()
		} else {
			x.Hidden[where] = 1
		}
	}
	if t.rows == nil {
		t.rows = make(map[string]*row)
	}
	if t.rows[x.Faults] == nil {
		t.rows[x.Faults] = newRow(x.Faults)
	}
	t.rows[x.Faults].add(x)
	return x
}

// line says in short what a round did.
func (x *row) line(since time.Duration, n int) string {
	var calls, failed int64
	for _, met := range x.Callers {
		calls, failed = calls+met.Calls, failed+met.Failed
	}
	var shown []string
	for _, where := range shownAt {
		if after, ok := x.Shown[where]; ok {
			shown = append(shown, fmt.Sprintf("%s %s", where, seconds(after)))
		}
	}
	return strings.TrimRight(fmt.Sprintf("%8v  round %3d  %-40s %6d of %6d calls failed; ready again after %5s; %s",
		since.Round(time.Second), n, x.Faults, failed, calls, seconds(x.Settled), strings.Join(shown, ", ")), "; ")
}

// several is the name of the row with all rounds in which faults overlapped. The JSON has each combination.
const several = "two or three at a time"

// short are the rows to print: faults that struck alone, and one row for all others.
func (t *table) short() (rows []*row) {
	rest := newRow(several)
	for _, name := range slices.Sorted(maps.Keys(t.rows)) {
		if strings.Contains(name, " + ") {
			rest.add(t.rows[name])
		} else {
			rows = append(rows, t.rows[name])
		}
	}
	if rest.Strikes > 0 {
		rows = append(rows, rest)
	}
	return rows
}

// print writes what callers met, then what operators saw.
func (t *table) print(out io.Writer) {
	rows := t.short()
	if len(rows) == 0 {
		return
	}
	tab := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tab, "FAILED/ALL CALLS\t%s\n", strings.Join(columns, "\t"))
	each := func(x *row, cell func(*met) string) {
		fmt.Fprint(tab, x.Faults)
		for _, kind := range columns {
			if m := x.Callers[kind]; m != nil {
				fmt.Fprint(tab, "\t", cell(m))
			} else {
				fmt.Fprint(tab, "\t-")
			}
		}
		fmt.Fprintln(tab)
	}
	for _, x := range rows {
		each(x, func(m *met) string { return fmt.Sprintf("%d/%d", m.Failed, m.Calls) })
	}
	tab.Flush()
	fmt.Fprintf(tab, "\nLONGEST TIME WITHOUT AN ANSWER\t%s\n", strings.Join(columns, "\t"))
	for _, x := range rows {
		each(x, func(m *met) string { return seconds(m.Gap) })
	}
	tab.Flush()
	fmt.Fprintf(tab, "\nSHOWED AFTER AT MOST\tstrikes\t%s\tready again after\n", strings.Join(shownAt, "\t"))
	for _, x := range rows {
		fmt.Fprintf(tab, "%s\t%d", x.Faults, x.Strikes)
		for _, where := range shownAt {
			switch after, hidden := x.Shown[where], x.Hidden[where]; {
			case hidden == 0:
				fmt.Fprintf(tab, "\t%s", seconds(after))
			case hidden == x.Strikes:
				fmt.Fprint(tab, "\t-")
			default:
				fmt.Fprintf(tab, "\t%s (in %d of %d)", seconds(after), x.Strikes-hidden, x.Strikes)
			}
		}
		fmt.Fprintf(tab, "\t%s\n", seconds(x.Settled))
	}
	tab.Flush()
}

// print writes the first and the last calm moment of the longest run of each process.
func (all samples) print(out io.Writer) {
	if len(all) == 0 {
		return
	}
	tab := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(tab, "\nLONGEST RUN OF\tseen for\tmegabytes\tdescriptors\tgoroutines\n")
	longest := all.longest()
	for _, name := range slices.Sorted(maps.Keys(longest)) {
		moments := longest[name]
		first, last := moments[0], moments[len(moments)-1]
		goroutines := fmt.Sprintf("%d, then %d", first.Goroutines, last.Goroutines)
		if last.Goroutines == 0 {
			goroutines = "-"
		}
		fmt.Fprintf(tab, "%s\t%v\t%d, then %d\t%d, then %d\t%s\n", name, last.at.Sub(first.at).Round(time.Second),
			first.Megabytes, last.Megabytes, first.Descriptors, last.Descriptors, goroutines)
	}
	tab.Flush()
}

func seconds(s float64) string { return fmt.Sprintf("%.1f s", s) }

// write puts the table and all else that a program may want to read into a file.
func (w *world) write(path string) error {
	rows := []*row{}
	for _, name := range slices.Sorted(maps.Keys(w.table.rows)) {
		rows = append(rows, w.table.rows[name])
	}
	data, err := json.MarshalIndent(map[string]any{
		"command": w.cfg.command(), "seed": fmt.Sprint(w.cfg.seed), "store": w.cfg.store, "servers": w.cfg.servers,
		"seconds": w.lasted.Seconds(), "faults": rows, "processes": w.samples.longest(), "violation": w.violation,
		"excused": slices.DeleteFunc(w.judge.Excused(), func(e judge.Excused) bool { return e.Used == 0 }),
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o600)
}
