package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
)

// asProcess makes the test binary another program, for tests that need one:
// "leaf" itself, or "wait" for signals.
const asProcess = "TEST_AS_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv("TZ") != "UTC" { // the zone of the times that tables show. It is read once, so the tests begin again in it
		os.Setenv("TZ", "UTC")
		panic(syscall.Exec(os.Args[0], os.Args, os.Environ()))
	}
	switch os.Getenv(asProcess) {
	case "leaf":
		main()
	case "wait":
		ctx := interruptible()
		fmt.Println("ready")
		<-ctx.Done()
		fmt.Println("stopping")
		select {}
	}
	os.Exit(m.Run())
}

func process(t *testing.T, as string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProcess+"="+as)
	return cmd
}

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
	conn  connFlags
	tags  []string
	limit int
	http  string
	dsn   int // a secret that can have a bad value
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
	p.conn.registerClient(cmd.Flags())
	cmd.Flags().StringSliceVar(&p.tags, "tag", nil, "tags")
	cmd.Flags().IntVar(&p.limit, "max-batch", 7, "a number")
	cmd.Flags().StringVar(&p.http, "http", "127.0.0.1:8080", "an address")
	cmd.Flags().IntVar(&p.dsn, "dsn", 0, "a secret")
	markSecret(cmd.Flags(), "dsn")
	group(cmd.Flags(), groupOutput, "tag", "max-batch", "http", "dsn")
	cmd.Flags().IntVar(&p.maxID, "max-id", 0, "an argument, and no setting")
	return cmd
}

// runProbe runs leaf with p, and a group that holds another command.
func runProbe(t *testing.T, p *probe, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	parent := &cobra.Command{Use: "group"}
	other := &cobra.Command{Use: "other", RunE: func(*cobra.Command, []string) error { return nil }}
	other.Flags().Bool("elsewhere", false, "a setting that probe does not have")
	group(other.Flags(), groupOutput, "elsewhere")
	parent.AddCommand(other)

	var out, errs bytes.Buffer
	status = run(t.Context(), assemble(p.command(), parent), args, &out, &errs)
	return status, out.String(), errs.String()
}

func TestExitStatus(t *testing.T) {
	cleanEnv(t)
	tests := []struct {
		name   string
		args   []string
		fails  error
		status int
		stderr string // all of it
	}{
		{name: "success", args: []string{"probe", "x"}},
		{name: "help", args: []string{"probe", "--help"}},
		{name: "nothing", args: []string{}}, // for nil cobra takes those of the test binary
		{name: "version", args: []string{"--version"}},
		{name: "group", args: []string{"group"}},
		{name: "failure", args: []string{"probe", "x"}, fails: errors.New("boom"), status: 1,
			stderr: "leaf: boom\n"},
		{name: "wrapped usage error", args: []string{"probe", "x"}, fails: fmt.Errorf("NAME: %w", usagef("bad tag")), status: 2,
			stderr: "leaf: NAME: bad tag\nRun \"leaf probe --help\" for usage.\n"},
		{name: "unknown flag", args: []string{"probe", "--nope"}, status: 2,
			stderr: "leaf: unknown flag: --nope\nRun \"leaf probe --help\" for usage.\n"},
		{name: "bad flag value", args: []string{"probe", "--max-batch", "many"}, status: 2,
			stderr: "leaf: bad value for --max-batch: \"many\" is not a whole number\n" +
				"Run \"leaf probe --help\" for usage.\n"},
		{name: "bad duration", args: []string{"probe", "--timeout", "5"}, status: 2,
			stderr: "leaf: bad value for --timeout: missing unit in duration \"5\": want one such as 500ms, 10s or 1h30m\n" +
				"Run \"leaf probe --help\" for usage.\n"},
		{name: "number below zero", args: []string{"probe", "-5"}, status: 2,
			stderr: "leaf: -5 is not a flag, and negative numbers are not allowed here\nRun \"leaf probe --help\" for usage.\n"},
		{name: "bad secret", args: []string{"probe", "--dsn", "hunter2"}, status: 2,
			stderr: "leaf: bad value for --dsn: it is not shown here, as it may hold a secret\nRun \"leaf probe --help\" for usage.\n"},
		{name: "too few arguments", args: []string{"probe"}, status: 2,
			stderr: "leaf: the argument NAME is missing: leaf probe NAME [flags]\nRun \"leaf probe --help\" for usage.\n"},
		{name: "too many arguments", args: []string{"probe", "x", "y z"}, status: 2,
			stderr: "leaf: the argument \"y z\" is one too many: leaf probe NAME [flags]\nRun \"leaf probe --help\" for usage.\n"},
		{name: "unknown command", args: []string{"prob"}, status: 2,
			stderr: "leaf: unknown command \"prob\" for \"leaf\": did you mean probe?\nRun \"leaf --help\" for usage.\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &probe{do: func(*cobra.Command) error { return tt.fails }}
			status, _, stderr := runProbe(t, p, tt.args...)
			if status != tt.status || stderr != tt.stderr {
				t.Errorf("leaf %v: status %d, stderr %q; want %d, %q", tt.args, status, stderr, tt.status, tt.stderr)
			}
		})
	}
}

func TestSecondSignalEndsTheProcess(t *testing.T) {
	cmd := process(t, "wait")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	for _, want := range []string{"ready", "stopping"} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("the process says %q (%v), want %q", lines.Text(), lines.Err(), want)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != exitFailed {
		t.Errorf("after a second signal: %v, want exit status %d", err, exitFailed)
	}
}
