// Package cli is what the commands of a program share: settings, the connection to NATS, output,
// and exit statuses.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/bus/events"
	"github.com/leafbus/leafbus/bus/kvstore"
)

// Exit statuses.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
	ExitNobody = 3 // no NATS server, or no generator
)

// UsageError is a mistake in the command line or the settings that a command finds only while it
// works.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }
func (e UsageError) Unwrap() error { return e.Err }

// Usagef returns a usage error. The format is that of [fmt.Errorf].
func Usagef(format string, a ...any) error { return UsageError{fmt.Errorf(format, a...)} }

// Nobody is an error which says that there is no NATS server, or no generator.
type Nobody struct{ Err error }

func (e Nobody) Error() string { return e.Err.Error() }
func (e Nobody) Unwrap() error { return e.Err }

// workError is an error of a command that has begun its work. What fails earlier is a mistake in
// the command line or the settings.
type workError struct{ error }

func (e workError) Unwrap() error { return e.error }

// Program puts commands below root, and gives all of them what they share.
func Program(root *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	root.SilenceErrors, root.SilenceUsage, root.DisableFlagsInUseLine = true, true, true // Run prints errors
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		warnUnknown(cmd)
		return configure(cmd)
	}
	Settings(root.PersistentFlags(), GroupCommand, func(fs *pflag.FlagSet) {
		fs.String("config", "", "YAML `FILE` with settings as its keys")
	})
	useGroups(root)
	root.AddCommand(commands...)
	root.InitDefaultCompletionCmd() // now, so that the loop below finds it
	root.InitDefaultHelpCmd()
	for _, cmd := range tree(root) {
		prepare(cmd)
	}
	return root
}

// tree returns cmd and all commands below it.
func tree(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, child := range cmd.Commands() {
		all = append(all, tree(child)...)
	}
	return all
}

// prepare makes a command check its arguments, and marks what fails after that. A group of commands
// prints its help.
func prepare(cmd *cobra.Command) {
	switch run := cmd.RunE; {
	case cmd.Name() == TopicConnection: // cobra prints its help
		return
	case cmd.Name() == "help" && cmd.Parent() == cmd.Root():
		cmd.Args = func(cmd *cobra.Command, args []string) error { // else cobra only prints that there is none
			about, rest, err := cmd.Root().Find(args)
			if err == nil && len(rest) > 0 {
				err = fmt.Errorf("unknown command %q for %q", rest[0], about.CommandPath())
			}
			return err
		}
	case !cmd.Runnable():
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		if cmd.HasParent() { // else cobra refuses it, and suggests another one
			cmd.Args = cobra.NoArgs
		}
	case run != nil:
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if err := run(cmd, args); err != nil {
				return workError{err}
			}
			return nil
		}
		if cmd.Args == nil {
			cmd.Args = argsOfUse
		}
	}
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions // no argument is a file
	}
}

// argsOfUse is the Args of a command without one: as many as its Use names, such as "get TAG",
// "bench [TAG]" or "decode ID...". The errors of cobra name no argument.
func argsOfUse(cmd *cobra.Command, args []string) error {
	names, _, _ := strings.Cut(cmd.Use, " -") // flags come last
	wanted := strings.Fields(names)[1:]
	for i, name := range wanted {
		if i >= len(args) && !strings.HasPrefix(name, "[") {
			return fmt.Errorf("the argument %s is missing: %s", strings.TrimSuffix(name, "..."), cmd.UseLine())
		}
	}
	if len(args) > len(wanted) && !strings.Contains(names, "...") {
		return fmt.Errorf("the argument %q is one too many: %s", args[len(wanted)], cmd.UseLine())
	}
	return nil
}

// oneSignal is within what time two signals count as one: timeout(1) sends its signal to the
// process and to its group.
const oneSignal = 10 * time.Millisecond

// Main runs a program, and ends the process with its exit status. The first SIGINT or SIGTERM ends
// the context of the command, so that it can finish what it has begun. A second one ends the
// process at once.
func Main(root *cobra.Command) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		name := "SIGTERM"
		if <-signals == os.Interrupt {
			name = "SIGINT"
		}
		cancel(errors.New(name))
		awaitSecond(signals)
		os.Exit(ExitFailed)
	}()
	os.Exit(Run(ctx, root, os.Args[1:], os.Stdout, os.Stderr))
}

// awaitSecond returns at the second signal. The first has just come.
func awaitSecond(signals <-chan os.Signal) {
	for first := time.Now(); ; {
		if <-signals; time.Since(first) >= oneSignal {
			return
		}
	}
}

// Run executes a program with these arguments, reports an error on stderr, and returns the exit
// status.
func Run(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	_, works := errors.AsType[workError](err)
	_, usage := errors.AsType[UsageError](err)
	usage = usage || !works
	asJSON, _ := cmd.Flags().GetBool("json") // false for a command without it, and where a flag before it is wrong
	switch {
	case asJSON || slices.Contains(args, "--json"):
		c := complaint{Message: err.Error()}
		if e, ok := errors.AsType[*bus.Error](err); ok {
			c.Code, c.Reason, c.RetryAfterMS = e.Code, e.Reason, e.RetryAfter.Milliseconds()
		}
		_ = PrintJSON(stderr, map[string]complaint{"error": c})
	case usage:
		fmt.Fprintf(stderr, "leaf: %v\nRun \"%s --help\" for usage.\n", err, cmd.CommandPath())
	case errors.Is(err, bus.UnknownTag):
		fmt.Fprintf(stderr, "leaf: %v\n`leaf tag add NAME` creates a tag, `leaf tag list` shows the tags.\n", err)
	default:
		fmt.Fprintf(stderr, "leaf: %v\n", err)
	}
	_, nobody := errors.AsType[Nobody](err)
	// NATS says so of a generator's subject. Of JetStream's it says the same, but there generators
	// may run.
	ofJetStream := errors.Is(err, events.ErrNoJetStream) || errors.Is(err, kvstore.ErrNoJetStream)
	silent := errors.Is(err, nats.ErrNoResponders) && !ofJetStream
	switch {
	case usage:
		return ExitUsage
	case nobody || silent:
		return ExitNobody
	}
	return ExitFailed
}

// complaint is an error as commands with --json print it. Code, Reason and RetryAfterMS are those
// of a generator's reply, if it refused.
type complaint struct {
	Message      string     `json:"message"`
	Code         int        `json:"code,omitempty"`
	Reason       bus.Reason `json:"reason,omitempty"`
	RetryAfterMS int64      `json:"retry_after_ms,omitempty"`
}
