package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// cleanEnv hides the settings and the NATS context of the person who runs the tests.
func cleanEnv(t *testing.T) {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "LEAF_") || strings.HasPrefix(name, "NATS_") {
			t.Setenv(name, "") // restores it afterwards
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// probe is a command with flags of all kinds that does what the test says.
type probe struct {
	conn  Conn
	tags  []string
	limit int
	http  string
	maxID int
	do    func(cmd *cobra.Command) error
}

func (p *probe) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "probe NAME",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if p.do == nil {
				return nil
			}
			return p.do(cmd)
		},
	}
	p.conn.RegisterClient(cmd.Flags())
	Settings(cmd.Flags(), GroupCommand, func(fs *pflag.FlagSet) {
		fs.StringSliceVar(&p.tags, "tag", nil, "tags")
		Number(fs, &p.limit, "max-batch", 7, 1, 100, "a number")
		fs.StringVar(&p.http, "http", "127.0.0.1:8080", "an address")
	})
	cmd.Flags().IntVar(&p.maxID, "max-id", 0, "an argument, and no setting")
	return cmd
}

// runProbe runs leaf with p, and a group that holds another command.
func runProbe(t *testing.T, p *probe, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	parent := &cobra.Command{Use: "group"}
	other := &cobra.Command{Use: "other", RunE: func(*cobra.Command, []string) error { return nil }}
	Settings(other.Flags(), GroupCommand, func(fs *pflag.FlagSet) {
		fs.Bool("elsewhere", false, "a setting that probe does not have")
	})
	parent.AddCommand(other)

	var out, errs bytes.Buffer
	status = Run(t.Context(), Program(&cobra.Command{Use: "leaf"}, p.command(), parent), args, &out, &errs)
	return status, out.String(), errs.String()
}
