package main

import (
	"time"

	"github.com/spf13/cobra"
)

func newDoctorCmd() *cobra.Command {
	var d doctor
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is wrong, and what to do",
		Long: `Say what is wrong with an installation, and what to do: what the generators find,
and what only the outside sees, such as the rights of this NATS user. It prints one
line for each finding, the worst first. It changes nothing. The exit status is 1 if
there is a problem, and 3 if there is no NATS server or no generator. What a start
needs is for "leaf serve --check".

With --wait it waits until any one machine may stop without an interruption, for
example before you restart it. docs/operate.md says what it cannot know.`,
		Example: `  leaf doctor
  leaf doctor -s nats://10.0.0.5:4222 --json
  leaf doctor --wait && ssh a systemctl restart leaf       machine a may stop
  leaf doctor --wait=30m -s nats://a:4222,nats://b:4222`,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("wait") {
			return d.await(cmd, wait)
		}
		if err := d.examineNATS(cmd); err != nil {
			return err
		}
		return d.conclude(cmd)
	}
	fs := cmd.Flags()
	fs.DurationVar(&wait, "wait", 0, "wait until any one machine may stop, for at most this `TIME`: --wait=30m")
	fs.Lookup("wait").NoOptDefVal = "5m0s"
	d.Register(cmd)
	d.OwnInboxes(fs)
	return cmd
}
