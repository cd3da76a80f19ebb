package cli

import (
	"fmt"
	"strings"
	"sync"

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
	cmd.SetHelpTemplate("{{.Long}}\n\nExamples:\n{{.Example}}{{flagGroups .}}\n")
	return cmd
}

// addFunc gives flagGroups to the templates. cobra keeps them for all programs of a process, which
// tests make at once.
var addFunc = sync.OnceFunc(func() { cobra.AddTemplateFunc("flagGroups", flagGroups) })

// useGroups makes the help show flags in groups.
func useGroups(root *cobra.Command) {
	addFunc()
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(),
		"\n\nFlags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}", "{{flagGroups .}}", 1))
}

// flagGroups are the flags of a command in groups. Those of a connection are a topic of their own.
func flagGroups(cmd *cobra.Command) (text string) {
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
		switch {
		case !flags.HasFlags():
		case title == GroupConnection && cmd.Name() != TopicConnection:
			text += "\n\nConnection to NATS: -s/--server, --creds, --user, --context and more: leaf help " + TopicConnection
		default:
			text += fmt.Sprintf("\n\n%s:\n%s", title, strings.TrimRight(flags.FlagUsages(), "\n"))
		}
	}
	return text
}
