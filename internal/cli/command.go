package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus/admin"
)

// Client has the flags of a command that asks NATS or generators, and prints the answer.
type Client struct {
	Conn
	JSON bool
}

// Register adds the flags to a command.
func (f *Client) Register(cmd *cobra.Command) {
	JSONFlag(cmd, &f.JSON)
	f.RegisterClient(cmd.Flags())
}

// JSONFlag adds the flag --json to a command.
func JSONFlag(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().BoolVar(asJSON, "json", false, "write JSON")
	Settings(cmd.Flags(), GroupCommand, "json")
}

// Command completes cmd with the flags, and with a run that is connected.
func (f *Client) Command(cmd *cobra.Command, run func(s *Session, args []string) error) *cobra.Command {
	f.Register(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return f.Run(cmd, func(s *Session) error { return run(s, args) })
	}
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
	operator := admin.NewClient(nc, admin.Timeout(f.Timeout))
	return do(&Session{Cmd: cmd, NC: nc, JS: js, Admin: operator, JSON: f.JSON, Timeout: f.Timeout})
}

// Session is one run of a command that is connected.
type Session struct {
	Cmd     *cobra.Command
	NC      *nats.Conn
	JS      jetstream.JetStream
	Admin   *admin.Client // its calls wait for up to Timeout
	JSON    bool
	Timeout time.Duration
}

// Context ends when the command is interrupted.
func (s *Session) Context() context.Context { return s.Cmd.Context() }

// Out is where results go.
func (s *Session) Out() io.Writer { return s.Cmd.OutOrStdout() }

// Print prints v as JSON if --json asks for it, and else what text writes.
func (s *Session) Print(v any, text func(io.Writer) error) error {
	if s.JSON {
		return PrintJSON(s.Out(), v)
	}
	return text(s.Out())
}

// Warnf prints a warning, a line on stderr.
func (s *Session) Warnf(format string, a ...any) { Warnf(s.Cmd, format, a...) }

// Failed is an error of asking NATS, as a person needs it: that the command was interrupted, or with the reason that
// NATS denied a request, because it does not answer such a request.
func (s *Session) Failed(err error) error {
	if s.Context().Err() != nil {
		return errors.New("interrupted")
	}
	denial := nats.ErrPermissionViolation
	if last := s.NC.LastError(); !errors.Is(err, denial) && errors.Is(last, denial) {
		return fmt.Errorf("%w (%w)", err, last)
	}
	return err
}
