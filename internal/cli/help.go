package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TopicConnection is the help topic with the flags of a connection.
const TopicConnection = "connection"

// NewConnectionTopic returns the topic. It is no command: it cannot be run.
func NewConnectionTopic() *cobra.Command {
	cmd := &cobra.Command{
		Use:   TopicConnection,
		Short: "How commands connect to NATS",
		Long: `The flags and variables are those of the nats CLI. Without them a command uses the
selected NATS context ("nats context select"), or else the server at 127.0.0.1:4222.
With --server the selected context is not used. leaf serve uses no context.`,
		Example: `  leaf get order -s nats://10.0.0.5:4222
  leaf get order -s nats://10.0.0.5:4222 --user leaf --password-file nats.password
  leaf get order --context production`,
	}
	new(Conn).RegisterClient(cmd.Flags())
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { // without it, cobra shows no flags of what cannot be run
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n", cmd.Long)
		_ = usage(cmd)
	})
	return cmd
}

// usage prints how a command is used, with its flags in groups. Those of a connection are a topic of their own.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	section := func(title, text string) {
		if text = strings.TrimRight(text, " \n"); text != "" {
			fmt.Fprintf(&b, "\n%s:\n%s\n", title, text)
		}
	}
	list := func(is func(*cobra.Command) bool) (lines string) {
		for _, c := range cmd.Commands() {
			if is(c) {
				lines += fmt.Sprintf("  %-*s %s\n", c.NamePadding(), c.Name(), c.Short)
			}
		}
		return lines
	}
	lines := "  " + cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		lines += "\n  " + cmd.CommandPath() + " COMMAND"
	}
	if cmd.Name() != TopicConnection {
		section("Usage", lines)
	}
	if len(cmd.Aliases) > 0 {
		section("Aliases", "  "+cmd.NameAndAliases())
	}
	section("Examples", cmd.Example)
	section("Commands", list(func(c *cobra.Command) bool { return c.IsAvailableCommand() || c.Name() == "help" }))
	for _, title := range []string{
		GroupStart, GroupNATS, GroupState, GroupSnowflakes, GroupLimits, GroupHTTP, GroupLog, GroupConnection,
		GroupCommand,
	} {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if in := noted(f, noteGroup); in == title || in == "" && title == GroupCommand {
				flags.AddFlag(f)
			}
		})
		if title == GroupConnection && flags.HasFlags() && cmd.Name() != TopicConnection {
			b.WriteString("\nConnection to NATS: -s/--server, --creds, --user, --context and more: " +
				"leaf help " + TopicConnection + "\n")
			continue
		}
		section(title, flags.FlagUsages())
	}
	section("Global flags", cmd.InheritedFlags().FlagUsages())
	section("Topics", list((*cobra.Command).IsAdditionalHelpTopicCommand))
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n\"%s COMMAND --help\" says more about a command.\n", cmd.CommandPath())
	}
	_, err := io.WriteString(cmd.OutOrStderr(), strings.TrimPrefix(b.String(), "\n"))
	return err
}
