package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
)

// logger hands nats-server's log to slog. nats-server expects Fatalf to exit
// the process; here it is remembered, so that Start can return it.
type logger struct {
	out    *slog.Logger
	fatal  atomic.Pointer[string] // the first one
	failed atomic.Pointer[string] // the first write that failed
}

// writeFailed is in the message that nats-server logs when a failed write stops a stream, a
// consumer or a Raft group for good. No other sign covers all three.
const writeFailed = "ritical write error"

func (l *logger) Noticef(format string, v ...any) { l.log(slog.LevelDebug, format, v) }
func (l *logger) Warnf(format string, v ...any)   { l.log(slog.LevelWarn, format, v) }
func (l *logger) Debugf(format string, v ...any)  { l.log(slog.LevelDebug, format, v) }
func (l *logger) Tracef(format string, v ...any)  { l.log(slog.LevelDebug, format, v) }

func (l *logger) Errorf(format string, v ...any) {
	if strings.Contains(format, writeFailed) {
		text := fmt.Sprintf(format, v...)
		l.failed.CompareAndSwap(nil, &text)
	}
	l.log(slog.LevelError, format, v)
}

func (l *logger) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.fatal.CompareAndSwap(nil, &text)
	l.out.Error(text)
}

func (l *logger) log(level slog.Level, format string, v []any) {
	if l.out.Enabled(context.Background(), level) {
		l.out.Log(context.Background(), level, fmt.Sprintf(format, v...))
	}
}
