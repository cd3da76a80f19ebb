package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// sample is what one measurement found. The times are in µs.
type sample struct{ perSecond, p50, p99 float64 }

// table is what Leafbus does beside a baseline, in lines that read well as they are and as Markdown.
type table struct{ strings.Builder }

const line = "| %-42s | %7v | %10v | %10v | %5v | %8v | %8v | %8v | %8v |\n"

func newTable(title string) *table {
	t := new(table)
	fmt.Fprintf(t, line, title, "callers", "per second", "baseline", "ratio", "p50 µs", "baseline", "p99 µs", "baseline")
	fmt.Fprintf(t, "| --- |%s\n", strings.Repeat(" ---: |", 8))
	return t
}

// add adds a line: the medians of the rounds. A ratio is the median of the rounds' own.
func (t *table) add(name string, callers int, base, ours []sample) {
	of := func(samples []sample, figure func(sample) float64) string {
		values := make([]float64, len(samples))
		for i, s := range samples {
			values[i] = figure(s)
		}
		return whole(median(values))
	}
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = ours[i].perSecond / base[i].perSecond
	}
	perSecond := func(s sample) float64 { return s.perSecond }
	p50, p99 := func(s sample) float64 { return s.p50 }, func(s sample) float64 { return s.p99 }
	fmt.Fprintf(t, line, name, callers, of(ours, perSecond), of(base, perSecond),
		strconv.FormatFloat(median(ratios), 'f', 2, 64), of(ours, p50), of(base, p50), of(ours, p99), of(base, p99))
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
