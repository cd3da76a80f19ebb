//go:build unix

package daemon

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/leafbus/leafbus/internal/testkit"
)

// obedient is a shell script that ends with status 7 when it is told to stop.
const obedient = `trap 'exit 7' TERM; echo runs; while :; do sleep 0.01; done`

// launchIn runs a script of the shell, and returns when it has written something or has ended.
func launchIn(dir, script string, program Program) (*Process, error) {
	program.Name, program.Command = "script", exec.Command("sh", "-c", script)
	program.Log = filepath.Join(dir, "log")
	p, err := Launch(program)
	if err != nil {
		return nil, err
	}
	_ = p.Await(func(context.Context) error {
		if text, err := os.ReadFile(program.Log); err != nil || len(text) == 0 {
			return errors.New("nothing is written")
		}
		return nil
	})
	return p, nil
}

func launch(t *testing.T, script string, program Program) *Process {
	t.Helper()
	p, err := launchIn(t.TempDir(), script, program)
	must(t, err)
	t.Cleanup(p.Close)
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// exists says whether a process with this number is there.
func exists(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func TestFreezeAndEnd(t *testing.T) {
	p := launch(t, obedient, Program{Stopped: 7})
	must(t, p.Freeze())
	if p.Ended() || p.Running() {
		t.Error("a frozen process is said to run, or to have ended")
	}
	if err := p.Stop(); err == nil {
		t.Error("a frozen process was stopped")
	}
	must(t, p.Thaw())
	must(t, p.Stop())
	if err := launch(t, obedient, Program{}).Stop(); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("an unexpected exit status: %v", err)
	}

	p = launch(t, obedient, Program{})
	must(t, p.Freeze())
	must(t, p.Kill())
	if exists(p.program.Command.Process.Pid) || !p.Ended() {
		t.Error("a frozen process outlives a kill")
	}

	p = launch(t, obedient, Program{})
	must(t, p.Kill())
	for name, act := range map[string]func() error{"Kill": p.Kill, "Stop": p.Stop, "Freeze": p.Freeze, "Thaw": p.Thaw} {
		if err := act(); err == nil || !strings.Contains(err.Error(), "script has ended") {
			t.Errorf("%s where nothing runs: %v", name, err)
		}
	}
}

// An error says what the server wrote, and whether its port is taken.
func TestAwaitEnds(t *testing.T) {
	p := launch(t, "echo fatal: address in use >&2; exit 1", Program{PortTaken: "address in use"})
	err := p.Await(func(context.Context) error { return errors.New("not yet") })
	if !errors.Is(err, ErrPortTaken) || !strings.Contains(err.Error(), "fatal: ") {
		t.Errorf("the cause is missing in: %v", err)
	}
}

// orphanEnv makes the test binary launch a process in the folder that it names, and wait to be killed.
const orphanEnv = "LEAF_TEST_ORPHAN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(orphanEnv); dir != "" {
		p, err := launchIn(dir, "echo $$; exec sleep 600", Program{})
		if err != nil || p.Ended() {
			os.Exit(1)
		}
		select {}
	}
	testkit.Main(m)
}
