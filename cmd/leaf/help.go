package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpGroups are the groups in the order of the help.
var helpGroups = []string{groupStart, groupNATS, groupState, groupSnowflakes, groupLimits, groupHTTP, groupLog}

// usage prints how a command is used: the settings of leaf serve in groups, and those of a connection in one line.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	section := func(title, text string) {
		if text != "" {
			fmt.Fprintf(&b, "\n%s:\n%s\n", title, strings.TrimRight(text, " \n"))
		}
	}
	if cmd.Runnable() {
		b.WriteString("Usage:\n  " + cmd.UseLine() + "\n")
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("  " + cmd.CommandPath() + " COMMAND\n")
	}
	if len(cmd.Aliases) > 0 {
		section("Aliases", "  "+cmd.NameAndAliases())
	}
	section("Examples", cmd.Example)
	section("Commands", listed(cmd, func(c *cobra.Command) bool { return c.IsAvailableCommand() || c.Name() == "help" }))
	flags := make(map[string]*pflag.FlagSet)
	for _, title := range append([]string{groupOutput, groupConnection}, helpGroups...) {
		flags[title] = pflag.NewFlagSet("", pflag.ContinueOnError)
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		title := groupOutput
		if in := f.Annotations[noteGroup]; in != nil {
			title = in[0]
		}
		flags[title].AddFlag(f)
	})
	if flags[groupConnection].HasFlags() {
		b.WriteString("\nConnection to NATS: -s/--server, --creds, --user, --context and more: leaf help " + connectionTopic + "\n")
	}
	for _, title := range helpGroups {
		section(title, flags[title].FlagUsages())
	}
	section("Flags", flags[groupOutput].FlagUsages())
	section("Global flags", cmd.InheritedFlags().FlagUsages())
	section("Topics", listed(cmd, (*cobra.Command).IsAdditionalHelpTopicCommand))
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n\"%s COMMAND --help\" says more about a command.\n", cmd.CommandPath())
	}
	_, err := io.WriteString(cmd.OutOrStderr(), strings.TrimPrefix(b.String(), "\n"))
	return err
}

// listed are the commands below cmd of which is is true, one a line.
func listed(cmd *cobra.Command, is func(*cobra.Command) bool) (lines string) {
	for _, c := range cmd.Commands() {
		if is(c) {
			lines += fmt.Sprintf("  %-*s %s\n", c.NamePadding(), c.Name(), c.Short)
		}
	}
	return lines
}

// connectionTopic is the help topic with the flags of a connection.
const connectionTopic = "connection"

// newConnectionTopic returns the topic. It is no command: it cannot be run.
func newConnectionTopic() *cobra.Command {
	var conn connFlags
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	conn.registerClient(flags)
	flags.VisitAll(documentVariables)
	cmd := &cobra.Command{
		Use:   connectionTopic,
		Short: "How commands connect to NATS",
		Long: `The flags and variables are the same as those of the nats CLI. Without them a command
uses the selected NATS context ("nats context select"). If there is none, it uses the
server at 127.0.0.1:4222. With --server the selected context is not used, because its
credentials are for other servers. leaf serve has these flags too, but no context.

Examples:
  leaf get order -s nats://10.0.0.5:4222
  leaf get order -s nats://10.0.0.5:4222 --user leaf --password-file nats.password
  leaf get order --context production`,
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n\nFlags:\n%s", cmd.Long, flags.FlagUsages())
	})
	return cmd
}
