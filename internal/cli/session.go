package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/admin"
	"github.com/leafbus/leafbus/internal/wire"
)

// errInterrupted is the error of a command that a signal ended.
var errInterrupted = errors.New("interrupted")

// Session is one run of a command.
type Session struct {
	Cmd  *cobra.Command
	Out  *bufio.Writer // of results. It keeps its first error, with which the command fails
	JSON bool

	// Of a command that is connected.
	NC      *nats.Conn
	JS      jetstream.JetStream
	Admin   *admin.Client // its calls wait for up to Timeout
	Timeout time.Duration

	progress *Progress
}

// Client has the flags of a command that asks NATS or generators, and prints the answer.
type Client struct {
	Conn
	JSON bool
}

func jsonFlag(cmd *cobra.Command, asJSON *bool) {
	Settings(cmd.Flags(), GroupCommand, func(fs *pflag.FlagSet) { fs.BoolVar(asJSON, "json", false, "write JSON") })
}

// Command completes cmd with the flags, and with a run that is connected.
func (f *Client) Command(cmd *cobra.Command, run func(s *Session, args []string) error) *cobra.Command {
	jsonFlag(cmd, &f.JSON)
	f.RegisterClient(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return f.Run(cmd, func(s *Session) error { return run(s, args) })
	}
	return cmd
}

// Local completes cmd with the flag --json, and with a run that is not connected.
func Local(cmd *cobra.Command, run func(s *Session, args []string) error) *cobra.Command {
	s := &Session{Cmd: cmd}
	jsonFlag(cmd, &s.JSON)
	cmd.RunE = func(_ *cobra.Command, args []string) error { return s.run(func() error { return run(s, args) }) }
	return cmd
}

// Run connects, and calls do.
func (f *Client) Run(cmd *cobra.Command, do func(*Session) error) error {
	nc, err := f.Connect(cmd)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := f.JetStream(nc)
	if err != nil {
		return err
	}
	s := &Session{Cmd: cmd, NC: nc, JS: js, Admin: admin.NewClient(nc, admin.Timeout(f.Timeout)), JSON: f.JSON,
		Timeout: f.Timeout}
	return s.run(func() error { return s.Failed(do(s)) })
}

// run calls do, and writes what it printed.
func (s *Session) run(do func() error) error {
	s.Out = bufio.NewWriterSize(s.Cmd.OutOrStdout(), 1<<16)
	s.progress = NewProgress(s.Cmd.ErrOrStderr())
	err := do()
	s.progress.End()
	return cmp.Or(s.Out.Flush(), err)
}

// Context ends when the command is interrupted, or when NATS denies a request.
func (s *Session) Context() context.Context { return s.Cmd.Context() }

// IDs returns a client that gets IDs. From then on the session's context ends as soon as NATS
// denies a request, because NATS does not answer that.
func (s *Session) IDs(opts ...bus.Option) *bus.Client {
	ctx, end := context.WithCancelCause(s.Context())
	report := s.NC.ErrorHandler()
	s.NC.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		if subject, ok := wire.DeniedPublication(err); ok && strings.HasPrefix(subject, "leaf.") {
			end(fmt.Errorf("this user of NATS may not publish to %s: %w", subject, nats.ErrPermissionViolation))
		}
		report(nc, sub, err)
	})
	s.Cmd.SetContext(ctx)
	return bus.NewClient(s.NC, append(opts, bus.Timeout(s.Timeout))...)
}

// Print prints v as JSON if --json asks for it, and else what text writes.
func (s *Session) Print(v any, text func(io.Writer)) error {
	if s.JSON {
		return PrintJSON(s.Out, v)
	}
	text(s.Out)
	return nil
}

// Sayf prints a result as soon as it is there, unless --json asks for one result at the end.
func (s *Session) Sayf(format string, a ...any) {
	if !s.JSON {
		fmt.Fprintf(s.Out, format, a...)
		s.Out.Flush()
	}
}

// Progress shows how far long work is.
func (s *Session) Progress(of string, done, total int64) { s.progress.At(of, done, total) }

// Warnf prints a warning, a line on stderr.
func (s *Session) Warnf(format string, a ...any) {
	s.progress.End()
	warnf(s.Cmd, format, a...)
}

// Failed is an error of asking NATS, as a person needs it: that the command was interrupted, or the
// reason why NATS denied a request, because it does not answer such a request.
func (s *Session) Failed(err error) error {
	denial, last := nats.ErrPermissionViolation, s.NC.LastError()
	_, answered := errors.AsType[*bus.Error](err)
	switch cause := context.Cause(s.Context()); {
	case errors.Is(cause, denial) && errors.Is(err, context.Canceled):
		return cause
	case err == nil, errors.Is(err, denial), errors.Is(err, errInterrupted):
	case cause != nil && errors.Is(err, context.Canceled):
		return errInterrupted
	case errors.Is(last, denial) && !answered && waited(err):
		return fmt.Errorf("%w (%w)", err, last)
	}
	return err
}

// waited reports whether err only says that no answer came.
func waited(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
}
