package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// table is a table that reads well as it is and as Markdown. Its first column
// has words, the others have numbers.
type table struct{ rows [][]string }

func newTable(head ...string) *table { return &table{[][]string{head}} }

// add adds a row, with a cell for each of the head's.
func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

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

// whole formats a number without a fraction, its thousands set apart.
func whole(f float64) string {
	s := strconv.FormatFloat(f, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func tenths(f float64) string     { return strconv.FormatFloat(f, 'f', 1, 64) }
func hundredths(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) }
func fourPlaces(f float64) string { return strconv.FormatFloat(f, 'f', 4, 64) }
