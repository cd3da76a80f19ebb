package main

import (
	"context"
	"fmt"
	"log/slog"
)

// logger returns a log of which warnings and errors are findings of a check: the checks that leaf serve makes at its
// start log what they find.
func (d *doctor) logger(check string) *slog.Logger { return slog.New(findingLog{d, check}) }

// findingLog is the handler of that log.
type findingLog struct {
	d     *doctor
	check string
}

// Enabled implements [slog.Handler].
func (findingLog) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements [slog.Handler].
func (h findingLog) Handle(_ context.Context, r slog.Record) error {
	f := finding{Check: h.check, State: stateWarning, Found: r.Message}
	if r.Level >= slog.LevelError {
		f.State = stateProblem
	}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "fix" {
			f.Fix = a.Value.String()
		} else {
			f.Found += fmt.Sprintf("; %s %v", a.Key, a.Value)
		}
		return true
	})
	h.d.add(f)
	return nil
}

// WithAttrs implements [slog.Handler]. What is common to all lines of a check is in its name.
func (h findingLog) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup implements [slog.Handler]. No check groups attributes.
func (h findingLog) WithGroup(string) slog.Handler { return h }
