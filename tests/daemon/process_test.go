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
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// launch runs a script of the shell, until the test ends at the latest, and
// returns when it has written something or has ended.
func launch(t *testing.T, script string, program Program) *Process {
	t.Helper()
	program.Name, program.Command = "script", exec.Command("sh", "-c", script)
	program.Log = filepath.Join(t.TempDir(), "log")
	p, err := Launch(program)
	must(t, err)
	t.Cleanup(p.Close)
	_ = p.Await(func(context.Context) error {
		if text, err := os.ReadFile(program.Log); err != nil || len(text) == 0 {
			return errors.New("nothing is written")
		}
		return nil
	})
	return p
}

// gone fails the test if the process still exists.
func gone(t *testing.T, p *Process) {
	t.Helper()
	if err := syscall.Kill(p.program.Command.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the process is still there: %v", err)
	}
}

const obedient = `trap 'exit 7' TERM; echo runs; while :; do sleep 0.01; done`

func TestKill(t *testing.T) {
	p := launch(t, obedient, Program{})
	if p.Ended() || !p.Running() {
		t.Error("it is said not to run")
	}
	must(t, p.Kill())
	gone(t, p)
	if !p.Ended() || p.Running() {
		t.Error("it is said to run")
	}
	for name, act := range map[string]func() error{
		"Kill": p.Kill, "Stop": p.Stop, "Freeze": p.Freeze, "Thaw": p.Thaw,
	} {
		if err := act(); err == nil || !strings.Contains(err.Error(), "script has ended") {
			t.Errorf("%s where nothing runs: %v", name, err)
		}
	}
	p.Close()
}

func TestStop(t *testing.T) {
	p := launch(t, obedient, Program{Stopped: 7})
	must(t, p.Stop())
	gone(t, p)
	if err := launch(t, obedient, Program{}).Stop(); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("an exit status that says of a failure: %v", err)
	}
}

func TestFreeze(t *testing.T) {
	p := launch(t, obedient, Program{Stopped: 7})
	must(t, p.Freeze())
	must(t, p.Freeze())
	if p.Ended() || p.Running() {
		t.Error("it is said to run, or to have ended")
	}
	if err := p.Stop(); err == nil {
		t.Error("a frozen process was stopped")
	}
	must(t, p.Thaw())
	must(t, p.Stop())

	p = launch(t, obedient, Program{})
	must(t, p.Freeze())
	must(t, p.Kill())
	gone(t, p)
}

func TestAwaitEnds(t *testing.T) {
	never := func(context.Context) error { return errors.New("not yet") }
	p := launch(t, "echo why >&2; exit 1", Program{PortTaken: "address in use"})
	err := p.Await(never)
	if err == nil || !strings.Contains(err.Error(), "exit status 1") || !strings.Contains(err.Error(), "why") {
		t.Errorf("the cause is missing in: %v", err)
	}
	if errors.Is(err, ErrPortTaken) {
		t.Errorf("of a port nothing was said: %v", err)
	}
	p = launch(t, "echo fatal: address in use; exit 1", Program{PortTaken: "address in use"})
	if err := p.Await(never); !errors.Is(err, ErrPortTaken) {
		t.Errorf("the port is not the cause in: %v", err)
	}
}

func TestLaunchFails(t *testing.T) {
	_, err := Launch(Program{Command: exec.Command("/no/such/program"), Log: filepath.Join(t.TempDir(), "log")})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("launched: %v", err)
	}
}
