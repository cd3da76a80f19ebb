package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leafbus/leafbus/bus"
)

// newRoot returns the program: the command leaf with everything below it.
func newRoot() *cobra.Command {
	return assemble(newServeCmd(), newGetCmd(), newSnowflakeCmd(), newDecodeCmd(), newTagCmd(), newWorkersCmd(),
		newNodesCmd(), newBackupCmd(), newRestoreCmd(), newBenchCmd(), newEventsCmd(), newAuditCmd(), newTraceCmd(), newLayoutCmd(), newHealthCmd(), newDoctorCmd(), newMigrateCmd(), newConnectionTopic())
}

// assemble puts commands below the command leaf, and gives all of them what
// they share: usage errors, and flags that the environment and a file can set.
func assemble(commands ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "leaf",
		Short: "Distributed IDs over NATS",
		Long: `Leafbus issues unique 64-bit IDs over NATS, of two kinds. A tag is a sequence of IDs
with a name, for example order. Generators reserve ranges of it. A snowflake is an ID
that contains the time when it was made, and needs no tag.

A setting is a flag, an environment variable, or a key of the YAML file of --config:
--data-dir, LEAF_DATA_DIR and data-dir are the same. A flag wins over both, and the
environment over the file. The help shows the variable of each setting. A flag without
a variable is an argument of one command. Exit status: 0, 1 failed or refused, 2 wrong
usage, 3 no NATS server or no generator. With --json an error is {"error":{"message":…}}.`,
		Example: `  leaf serve --tag order                run a generator, with a NATS server inside
  leaf serve -s nats://10.0.0.5:4222    run one that joins the NATS you have
  leaf serve --mysql-file leaf.dsn      keep the tags where Leaf keeps them, in MySQL
  leaf get order -n 10                  ten IDs, one a line
  leaf snowflake                        one ID with its time: leaf decode ID
  leaf tag list                         the tags, and how far they are
  leaf nodes                            the generators that are running
  leaf bench order                      how fast it is, and whether an ID comes twice
  leaf events --alerts                  what needs your attention, as it happens
  leaf doctor                           what is wrong with NATS, the disk, the clocks, …
  leaf audit                            whether any ID was claimed twice
  leaf trace order 4711                 which generator claimed this ID`,
		Version:                    bus.Version(),
		SilenceErrors:              true, // run prints them
		SilenceUsage:               true,
		DisableFlagsInUseLine:      true,
		SuggestionsMinimumDistance: 2,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			warnUnknown(cmd)
			return configure(cmd)
		},
	}
	root.PersistentFlags().String("config", "", "YAML `FILE` with settings as its keys")
	group(root.PersistentFlags(), groupOutput, "config")
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(usage)
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.AddCommand(commands...)
	root.InitDefaultCompletionCmd() // now, so that the loop below finds it
	for _, cmd := range tree(root) {
		checkArgs(cmd)
		completeFiles(cmd)
		cmd.LocalFlags().VisitAll(documentVariables)
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

// checkArgs makes wrong arguments of cmd a usage error. A group of commands prints its help, but refuses
// an unknown command: by default, cobra would print the help then too, and report success.
func checkArgs(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions // no argument is a file
	}
	validate := cmd.Args
	switch {
	case cmd.Name() == connectionTopic: // cobra prints its help
		return
	case !cmd.Runnable():
		validate = refuseUnknown
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	case validate == nil:
		validate = argsOfUse
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		return asUsage(validate(cmd, args))
	}
}

// argsOfUse is the Args of a command without one: as many as its Use names, such as "get TAG", "bench [TAG]" or "decode
// ID...". The errors of cobra name no argument.
func argsOfUse(cmd *cobra.Command, args []string) error {
	most := 0
	for _, name := range strings.Fields(cmd.Use)[1:] {
		if strings.HasPrefix(name, "-") {
			break // flags come last
		}
		if most++; len(args) < most && !strings.HasPrefix(name, "[") {
			return fmt.Errorf("the argument %s is missing: %s", strings.TrimSuffix(name, "..."), cmd.UseLine())
		}
		if strings.Contains(name, "...") {
			return nil
		}
	}
	switch {
	case most == 0:
		return cobra.NoArgs(cmd, args)
	case len(args) > most:
		return fmt.Errorf("the argument %q is one too many: %s", args[most], cmd.UseLine())
	}
	return nil
}

// refuseUnknown is the Args of a group of commands: cobra has not found the argument in the group.
func refuseUnknown(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = cmd.Root().SuggestionsMinimumDistance
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("unknown command %q for %q: did you mean %s?",
			args[0], cmd.CommandPath(), strings.Join(near, " or "))
	}
	return fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
}

// flagError makes pflag's error about the command line a usage error.
func flagError(_ *cobra.Command, err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return asUsage(badValue(bad.GetFlag(), errors.Unwrap(bad)))
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if digits := unknown.GetSpecifiedShortnames(); strings.Trim(digits, "0123456789") == "" && digits != "" {
			return usagef("-%s is not a flag, and negative numbers are not allowed here", digits)
		}
	}
	return asUsage(err)
}

// usageError is a mistake in the command line or the configuration, as opposed to a failure of the work.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usagef returns a usage error. The format is that of [fmt.Errorf].
func usagef(format string, a ...any) error {
	return &usageError{fmt.Errorf(format, a...)}
}

// within returns a usage error if the value of a flag is out of its range.
func within[T cmp.Ordered](flag string, value, least, most T) error {
	if value < least || value > most {
		return usagef("--%s is %v, not from %v to %v", flag, value, least, most)
	}
	return nil
}

// asUsage makes err, unless nil, a usage error.
func asUsage(err error) error {
	if err == nil {
		return nil
	}
	return &usageError{err}
}
