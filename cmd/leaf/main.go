// Command leaf runs Leafbus generators and talks to them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/leafbus/leafbus/bus"
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
	fmt.Fprintf(stderr, "leaf: %v\n", err)
	if _, ok := errors.AsType[*usageError](err); ok {
		fmt.Fprintf(stderr, "Run \"%s --help\" for usage.\n", cmd.CommandPath())
		return exitUsage
	}
	if errors.Is(err, bus.UnknownTag) {
		fmt.Fprintln(stderr, "`leaf tag add NAME` creates a tag, `leaf tag list` shows the tags.")
	}
	// NATS says so of a generator's subject. Of JetStream's it says the same, but there generators may run.
	if errors.Is(err, errNobody) || errors.Is(err, nats.ErrNoResponders) && !errors.Is(err, bus.ErrNoJetStream) && !errors.Is(err, kvstore.ErrNoJetStream) {
		return exitNobody
	}
	return exitFailed
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
