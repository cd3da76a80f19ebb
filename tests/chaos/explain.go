package main

import (
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/leafbus/leafbus/tests/kit/callers"
)

const (
	clock = "15:04:05.000"
	// answersShown is how many answers around a violation are printed, and answersAround how far from it.
	answersShown, answersAround = 40, 2 * time.Second
	// notesShown is how many notes are printed, and notesAround how far from the violation.
	notesShown, notesAround = 100, time.Minute
	widest                  = 200
)

// print writes the tables, and the excuses that were used.
func (w *world) print(out io.Writer) {
	w.table.print(out)
	w.samples.print(out)
	first := true
	for _, e := range w.judge.Excused() {
		if e.Used == 0 {
			continue
		}
		if first {
			fmt.Fprint(out, "\nEXCUSED, because the promises exclude it\n")
			first = false
		}
		fmt.Fprintf(out, "%s of %q, %d times: %s\n", e.Check, e.Tag, e.Used, e.Why)
	}
}

// explain prints the first violation, with what happened around it.
func (w *world) explain(out io.Writer) {
	v := w.violation
	fmt.Fprintf(out, "\nBROKEN PROMISE %q at %s", v.Check, v.At.Format(clock))
	if v.Tag != "" {
		fmt.Fprintf(out, " of tag %s", v.Tag)
	}
	fmt.Fprintf(out, ": %s\n\nWhat happened around it:\n", v.Text)
	for _, n := range around(w.notes, v.At) {
		fmt.Fprintf(out, "  %s  %s\n", n.at.Format(clock), cut(n.text, widest))
	}
	var calls []callers.Call
	if v.Tag != "" || len(v.Calls) > 0 { // others are about no answer
		calls = w.judge.Around(v, answersAround)
		fmt.Fprintf(out, "\nAnswers of %v before it and after it", answersAround)
	}
	if more := len(calls) - answersShown; more > 0 {
		fmt.Fprintf(out, " (%d earlier ones are left out)", more)
		calls = calls[more:]
	}
	fmt.Fprintln(out)
	for _, c := range calls {
		text := fmt.Sprint(c.Ranges)
		if c.Err != nil {
			text = c.Err.Error()
		}
		fmt.Fprintf(out, "  %s – %s  %s: %s\n", c.Sent.Format(clock), c.Ended.Format(clock), c.Kind, cut(text, widest))
	}
	// Again at the end, for who sees only the last lines.
	fmt.Fprintf(out, "\nBROKEN PROMISE %q: %s\nRepeat it: %s\n", v.Check, cut(v.Text, widest), w.cfg.command())
}

// around are the notes near a moment, the last if there are many.
func around(notes []note, at time.Time) (near []note) {
	for _, n := range notes {
		if d := n.at.Sub(at).Abs(); d < notesAround {
			near = append(near, n)
		}
	}
	return near[max(0, len(near)-notesShown):]
}

// cut shortens a text to n bytes.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}
