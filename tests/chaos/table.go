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

// met is what callers met in all strikes of a row.
type met struct {
	Calls   int64            `json:"calls"`
	IDs     int64            `json:"ids"`
	Failed  int64            `json:"failed"`
	Gap     float64          `json:"longest_without_answer_s"` // of all callers of one kind together
	Reasons map[string]int64 `json:"reasons"`
}

func (m *met) add(more callers.Met) {
	m.Calls, m.IDs, m.Failed = m.Calls+more.Calls, m.IDs+more.IDs, m.Failed+more.Failed
	m.Gap = max(m.Gap, more.Gap.Seconds())
	for reason, n := range more.Reasons {
		m.Reasons[reason] += n
	}
}

func (t *table) add(w *world, r round) {
	if t.rows == nil {
		t.rows = make(map[string]*row)
	}
	name := r.names()
	x := t.rows[name]
	if x == nil {
		x = &row{Faults: name, Callers: map[string]*met{}, Shown: map[string]float64{}, Hidden: map[string]int{}}
		t.rows[name] = x
	}
	began, ended, settled := r[0].began, r[0].ended, r[0].settled
	for _, s := range r {
		began, ended = earlier(began, s.began), later(ended, s.ended)
	}
	x.Strikes++
	x.Settled = max(x.Settled, settled.Sub(ended).Seconds())
	for kind, m := range w.judge.Met(began, settled) {
		column, _, _ := strings.Cut(kind, ": ")
		if x.Callers[column] == nil {
			x.Callers[column] = &met{Reasons: make(map[string]int64)}
		}
		x.Callers[column].add(m)
	}
	for _, where := range []string{byReadiness, byNodes, byAlert} {
		if after := w.watch.first(where, began, settled); after > 0 {
			x.Shown[where] = max(x.Shown[where], after.Seconds())
		} else {
			x.Hidden[where]++
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// line says in short what the last round did.
func (t *table) line(w *world, n int, r round) string {
	x := t.rows[r.names()]
	var calls, failed int64
	for _, met := range x.Callers {
		calls, failed = calls+met.Calls, failed+met.Failed
	}
	return fmt.Sprintf("%8v  round %3d  %-50s %6d of %7d calls failed; ready again after %.1f s",
		time.Since(w.began).Round(time.Second), n, r.names(), failed, calls, x.Settled)
}

// print writes the table: failed calls / all calls, and the longest time without an answer.
func (t *table) print(out io.Writer) {
	tab := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tab, "fault\tstrikes\t%s\treadiness\tnodes\talert\tready again\n", strings.Join(columns, "\t"))
	for _, name := range slices.Sorted(maps.Keys(t.rows)) {
		x := t.rows[name]
		fmt.Fprintf(tab, "%s\t%d", name, x.Strikes)
		for _, kind := range columns {
			met := x.Callers[kind]
			if met == nil {
				fmt.Fprint(tab, "\t–")
				continue
			}
			fmt.Fprintf(tab, "\t%d/%d (%s)", met.Failed, met.Calls, seconds(met.Gap))
		}
		for _, where := range []string{byReadiness, byNodes, byAlert} {
			switch after, hidden := x.Shown[where], x.Hidden[where]; {
			case hidden == 0:
				fmt.Fprintf(tab, "\t%s", seconds(after))
			case hidden == x.Strikes:
				fmt.Fprint(tab, "\t–")
			default:
				fmt.Fprintf(tab, "\t%s, %d of %d not", seconds(after), hidden, x.Strikes)
			}
		}
		fmt.Fprintf(tab, "\t%s\n", seconds(x.Settled))
	}
	tab.Flush()
}

func seconds(s float64) string { return fmt.Sprintf("%.1f s", s) }

// write puts the table and all else that a program may want to read into a file.
func (t *table) write(w *world, path string) error {
	var rows []*row
	for _, name := range slices.Sorted(maps.Keys(t.rows)) {
		rows = append(rows, t.rows[name])
	}
	data, err := json.MarshalIndent(map[string]any{
		"seed": fmt.Sprint(w.cfg.seed), "store": w.cfg.store, "servers": w.cfg.servers, "seconds": time.Since(w.began).Seconds(),
		"faults": rows, "violation": w.violation, "excused": w.judge.Excused(),
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o600)
}
