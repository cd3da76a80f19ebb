package embedded

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync/atomic"
)

// logger hands nats-server's log to slog. nats-server expects Fatalf to exit
// the process; here it is remembered, so that Start can return it.
type logger struct {
	out    *slog.Logger
	fatal  atomic.Pointer[string] // the first one
	failed atomic.Pointer[string] // the first failed write, unless it was to a stream that is not of Leafbus
}

// writeFailed is in the message that nats-server logs when a failed write stops a stream, a
// consumer or a Raft group until a restart. nats-server reports all three in no other way.
const writeFailed = "ritical write error"

// noRoute begins the message that another server of the cluster cannot be reached, as at each start
// of the first one. [Server.Health] reports a cluster that lacks servers.
const noRoute = "Error trying to connect to route"

// writtenTo finds the stream that nats-server names in such a message.
var writtenTo = regexp.MustCompile(`^(?:Filestore \[([^\]]+)\]|JetStream stream '.* > ([^']+)'|` +
	`JetStream consumer '.* > (.+) > [^']+') `)

// group is the name of a group of servers, which has a store like a stream.
var group = regexp.MustCompile(`^(_meta_$|[SC]-R\d)`)

// ofForeignStream reports whether a message is of a stream that is not of Leafbus. A restart for
// such a stream would interrupt Leafbus, again and again if the stream's files are broken.
func ofForeignStream(text string) bool {
	found := writtenTo.FindStringSubmatch(text)
	if found == nil {
		return false
	}
	name := cmp.Or(found[1:]...)
	return !ours(name) && !group.MatchString(name)
}

func (l *logger) Noticef(format string, v ...any) { l.log(slog.LevelDebug, format, v) }
func (l *logger) Warnf(format string, v ...any)   { l.log(slog.LevelWarn, format, v) }
func (l *logger) Debugf(format string, v ...any)  { l.log(slog.LevelDebug, format, v) }
func (l *logger) Tracef(format string, v ...any)  { l.log(slog.LevelDebug, format, v) }

func (l *logger) Errorf(format string, v ...any) {
	if strings.Contains(format, writeFailed) {
		if text := fmt.Sprintf(format, v...); !ofForeignStream(text) {
			l.failed.CompareAndSwap(nil, &text)
		}
	}
	level := slog.LevelError
	if strings.HasPrefix(format, noRoute) {
		level = slog.LevelWarn
	}
	l.log(level, format, v)
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
