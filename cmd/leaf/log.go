package main

import (
	"io"
	"log/slog"
)

// newLogger returns the structured log of a generator.
func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var opts slog.HandlerOptions
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usagef("--log-level %q: want debug, info, warn or error", level)
	}
	opts.Level = l
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, &opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, &opts)), nil
	}
	return nil, usagef("--log-format %q: want text or json", format)
}
