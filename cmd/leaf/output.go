package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// isTerminal reports whether a person may be looking at the stream. It is true for any character device, also
// for /dev/null, where it does no harm.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// printJSON writes v as one line of JSON, with <, > and & as they are.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printTable writes rows below a header, in aligned columns.
func printTable(w io.Writer, header []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = strings.Map(printable, cell)
		}
		if _, err := fmt.Fprintln(tw, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return tw.Flush()
}

// printable replaces control characters. Text of others, such as the description of a tag, must not
// break the table or send commands to the terminal.
func printable(r rune) rune {
	if unicode.IsControl(r) {
		return ' '
	}
	return r
}

// timeOf returns a time for people: RFC 3339 in the zone of this machine, as the log has it.
func timeOf(t time.Time) string { return t.Local().Format(time.RFC3339) }

// precise is timeOf with milliseconds.
func precise(t time.Time) string { return t.Local().Format("2006-01-02T15:04:05.000Z07:00") }

const progressEvery = 200 * time.Millisecond

// progress shows on a terminal how much of some long work is done. It shows nothing for short work, and
// nothing where there is no terminal.
type progress struct {
	w           io.Writer // nil: not a terminal
	of          string    // what is counted, such as IDs
	done, total int64
	start, last time.Time
	shown       bool
}

func newProgress(w io.Writer, total int64, of string) *progress {
	p := &progress{of: of, total: total, start: time.Now(), last: time.Now()}
	if isTerminal(w) {
		p.w = w
	}
	return p
}

// add notes that n more are done.
func (p *progress) add(n int64) {
	p.done += n
	now := time.Now()
	if p.w == nil || now.Sub(p.last) < progressEvery {
		return
	}
	p.last, p.shown = now, true
	rate := float64(p.done) / now.Sub(p.start).Seconds()
	// More seconds than that are decades.
	left := time.Duration(min(float64(p.total-p.done)/rate, math.MaxInt32) * float64(time.Second)).Round(time.Second)
	fmt.Fprintf(p.w, "\r\x1b[K%d of %d %s (%.0f %%), %.0f/s, %v left", p.done, p.total, p.of, float64(p.done)/float64(p.total)*100, rate, left)
}

// at notes how far a stage of the work is. The next stage begins with another name of what is counted.
func (p *progress) at(of string, done, total int64) {
	if of != p.of {
		p.of, p.done, p.start = of, 0, p.last
	}
	p.total = max(total, 1)
	p.add(done - p.done)
}

// end wipes the line.
func (p *progress) end() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// newLogger returns the structured log of a generator.
func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, usagef("--log-level %q: want debug, info, warn or error", level)
	}
	opts := slog.HandlerOptions{Level: least}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, &opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, &opts)), nil
	}
	return nil, usagef("--log-format %q: want text or json", format)
}
