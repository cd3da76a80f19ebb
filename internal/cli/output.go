package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
)

// IsTerminal reports whether a person may be looking at the stream. It is true for any character
// device, also for /dev/null, where it does no harm.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// PrintJSON writes v as one line of JSON, with <, > and & as they are.
func PrintJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Row is a row of a table.
type Row []any

// PrintTable writes rows in aligned columns, the header first. An empty cell is a dash, and so is a
// time that is zero. The writer keeps its errors.
func PrintTable(w io.Writer, rows ...Row) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			if at, ok := cell.(time.Time); ok {
				cell = Time(at)
			}
			cells[i] = cmp.Or(Safe(fmt.Sprint(cell)), "-")
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	tw.Flush()
}

// Safe replaces control characters. Text of others, such as the description of a tag, must not
// break a table or send commands to the terminal.
func Safe(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// Time returns a time for people: RFC 3339 in the zone of this machine, as the log has it. The zero
// time is empty.
func Time(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.RFC3339)
}

// TimeMS is Time with milliseconds.
func TimeMS(t time.Time) string { return t.Local().Format("2006-01-02T15:04:05.000Z07:00") }

// Counted is a number of things: 1 tag, 2 tags.
func Counted[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// warnf prints a warning, a line on stderr.
func warnf(cmd *cobra.Command, format string, a ...any) {
	fmt.Fprintf(cmd.ErrOrStderr(), "warning: "+format+"\n", a...)
}

// progressEvery is how often long work is shown.
const progressEvery = 200 * time.Millisecond

// Progress shows on a terminal how much of some long work is done. It shows nothing for short work,
// and nothing where there is no terminal. It is safe for concurrent use.
type Progress struct {
	w io.Writer // nil: not a terminal

	mu    sync.Mutex // guards all below, and the line on the terminal
	last  time.Time
	shown bool
}

// NewProgress begins to show work on w.
func NewProgress(w io.Writer) *Progress {
	p := &Progress{last: time.Now()}
	if IsTerminal(w) {
		p.w = w
	}
	return p
}

// At notes how far the work is. of is what is counted, such as IDs.
func (p *Progress) At(of string, done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); p.w != nil && now.Sub(p.last) >= progressEvery {
		p.last, p.shown = now, true
		fmt.Fprintf(p.w, "\r\x1b[K%d of %d %s", done, total, of)
	}
}

// End wipes the line.
func (p *Progress) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		p.shown = false
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// NewLogger returns a structured log.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var opts slog.HandlerOptions
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, Usagef("--log-level %q: want debug, info, warn or error", level)
	}
	switch opts.Level = least; format {
	case "text":
		return slog.New(slog.NewTextHandler(w, &opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, &opts)), nil
	}
	return nil, Usagef("--log-format %q: want text or json", format)
}
