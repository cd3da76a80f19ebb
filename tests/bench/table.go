package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// table is a table that reads well as it is and as Markdown. Its first column
// has words, the others have numbers.
type table struct {
	callers bool // whether the second column says how many there are
	columns []column
	rows    [][]string
}

// column is a figure of one of a row's ways: the median of the rounds, or how many times that of another way it was in
// the same round.
type column struct {
	head   string
	way    int
	over   int // -1: no ratio
	figure figure
	format func(float64) string
}

func of(head string, way int, f figure, format func(float64) string) column {
	return column{head, way, -1, f, format}
}

func ratio(head string, way, over int, f figure, format func(float64) string) column {
	return column{head, way, over, f, format}
}

// newTable makes a table. callers is the head of the second column, "" for none.
func newTable(title, callers string, columns ...column) *table {
	head := []string{title}
	if callers != "" {
		head = append(head, callers)
	}
	for _, c := range columns {
		head = append(head, c.head)
	}
	return &table{callers: callers != "", columns: columns, rows: [][]string{head}}
}

// add adds a row, with the samples of each way.
func (t *table) add(name string, callers int, samples ...[]sample) {
	cells := []string{name}
	if t.callers {
		cells = append(cells, strconv.Itoa(callers))
	}
	for _, c := range t.columns {
		values := make([]float64, len(samples[c.way]))
		for round, s := range samples[c.way] {
			values[round] = s[c.figure]
			if c.over >= 0 {
				values[round] /= samples[c.over][round][c.figure]
			}
		}
		cells = append(cells, c.format(median(values)))
	}
	t.rows = append(t.rows, cells)
}

// String returns the table, a line each row.
func (t *table) String() string {
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for i, row := range t.rows {
		for c, cell := range row {
			if c == 0 {
				fmt.Fprintf(&b, "| %-*s |", widths[c], cell)
			} else {
				fmt.Fprintf(&b, " %*s |", widths[c], cell)
			}
		}
		b.WriteByte('\n')
		if i > 0 {
			continue
		}
		for c, w := range widths {
			if c == 0 {
				b.WriteString("| " + strings.Repeat("-", w) + " |")
			} else {
				b.WriteString(" " + strings.Repeat("-", w-1) + ": |")
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// whole formats a number without a fraction, its thousands set apart.
func whole(f float64) string {
	s := strconv.FormatFloat(f, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func thousands(f float64) string  { return whole(f / 1e3) } // of ns in µs
func hundredths(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) }
