// Command leaf runs Leafbus generators and talks to them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/kvstore"
)

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	exitNobody = 3
)

// errNobody is matched by errors that say that there is no NATS server, or no generator.
var errNobody = errors.New("nobody is there")

// nobodyError makes an error match errNobody. Its text stays as it is.
type nobodyError struct{ error }

func (e nobodyError) Unwrap() error      { return e.error }
func (nobodyError) Is(target error) bool { return target == errNobody }

func main() {
	os.Exit(run(interruptible(), newRoot(), os.Args[1:], os.Stdout, os.Stderr))
}

// run executes root with args, reports an error on stderr and returns the exit
// status.
func run(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	_, usage := errors.AsType[*usageError](err)
	asJSON, _ := cmd.Flags().GetBool("json") // false for a command without it, and where a flag before it is wrong
	switch {
	case asJSON || slices.Contains(args, "--json"):
		_ = printJSON(stderr, struct {
			Error complaint `json:"error"`
		}{complaintOf(err)})
	case usage:
		fmt.Fprintf(stderr, "leaf: %v\nRun \"%s --help\" for usage.\n", err, cmd.CommandPath())
	case errors.Is(err, bus.UnknownTag):
		fmt.Fprintf(stderr, "leaf: %v\n`leaf tag add NAME` creates a tag, `leaf tag list` shows the tags.\n", err)
	default:
		fmt.Fprintf(stderr, "leaf: %v\n", err)
	}
	if usage {
		return exitUsage
	}
	// NATS says so of a generator's subject. Of JetStream's it says the same, but there generators may run.
	if errors.Is(err, errNobody) || errors.Is(err, nats.ErrNoResponders) && !errors.Is(err, events.ErrNoJetStream) && !errors.Is(err, kvstore.ErrNoJetStream) {
		return exitNobody
	}
	return exitFailed
}

// complaint is an error as commands with --json print it. Code, Reason and RetryAfterMS are those of a generator's
// reply, if it refused.
type complaint struct {
	Message      string     `json:"message"`
	Code         int        `json:"code,omitempty"`
	Reason       bus.Reason `json:"reason,omitempty"`
	RetryAfterMS int64      `json:"retry_after_ms,omitempty"`
}

func complaintOf(err error) complaint {
	c := complaint{Message: err.Error()}
	if e, ok := errors.AsType[*bus.Error](err); ok {
		c.Code, c.Reason, c.RetryAfterMS = e.Code, e.Reason, e.RetryAfter.Milliseconds()
	}
	return c
}

// interruptible returns a context that ends with the first SIGINT or SIGTERM, so that the command can
// finish what it has begun. A second signal ends the process at once.
func interruptible() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		name := "SIGTERM"
		if <-signals == os.Interrupt {
			name = "SIGINT"
		}
		cancel(errors.New(name))
		<-signals
		os.Exit(exitFailed)
	}()
	return ctx
}
