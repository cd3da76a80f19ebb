// Package kit runs the real processes that tests need: leaf, MariaDB, ZooKeeper, and TCP links that can
// be slow, silent or cut. Each ends with the test binary, whatever ends that. All can be killed, frozen
// and started again. Package callers adds those who request IDs, package browser those who look.
package kit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
)

// Patience is how long a process may take to start, to stop or to answer.
const Patience = testkit.Patience

// Program is how a process is run.
type Program struct {
	Name      string // for errors
	Command   *exec.Cmd
	Log       string // the path of a file for what it writes; empty: it stays in memory
	PortTaken string // what it writes if another process has its port; empty if nothing
	Stopped   int    // its exit status after SIGTERM
}

// Process is a process that runs or has ended. Its methods are for one goroutine at a time, except Ended,
// Stdout and Stderr.
type Process struct {
	program        Program
	stdout, stderr output // if there is no file
	exited         chan struct{}
	frozen         bool
}

// output collects what a process writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Launch starts a process. Its log replaces that of the last run.
func Launch(program Program) (*Process, error) {
	p := &Process{program: program, exited: make(chan struct{})}
	cmd := program.Command
	if program.Log != "" {
		file, err := os.Create(program.Log)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		cmd.Stdout, cmd.Stderr = file, file
	} else {
		cmd.Stdout, cmd.Stderr = cmp.Or[io.Writer](cmd.Stdout, &p.stdout), cmp.Or[io.Writer](cmd.Stderr, &p.stderr)
	}
	dieWithParent(cmd)
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// run starts the process and lasts as long as it. For Linux the parent of a process is the thread that
// started it. run keeps that thread, so only the end of the whole test binary ends it.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.program.Command.Start()
	started <- err
	if err != nil {
		return
	}
	defer close(p.exited)
	_ = p.program.Command.Wait() // the status is in its ProcessState
}

// Stdout returns what the process has written to stdout, if it has no log.
func (p *Process) Stdout() string { return p.stdout.String() }

// Stderr returns what the process has written to stderr, if it has no log.
func (p *Process) Stderr() string { return p.stderr.String() }

// Await asks until ready returns nil. It fails if the process ends, or after Patience. Another process that
// has the port may accept connections and say nothing, so each answer must come within a second.
func (p *Process) Await(ready func(context.Context) error) error {
	looks := time.NewTicker(10 * time.Millisecond)
	defer looks.Stop()
	for deadline := time.Now().Add(Patience); ; <-looks.C {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err := ready(ctx)
		cancel()
		switch {
		case err == nil:
			return nil
		case p.Ended():
			return p.failure()
		case time.Now().After(deadline):
			return p.withLog(fmt.Errorf("%s is not ready after %v: %w", p.program.Name, Patience, err))
		}
	}
}

// Running reports whether the process has neither ended nor been frozen.
func (p *Process) Running() bool { return !p.Ended() && !p.frozen }

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// Wait waits for the end of the process and returns its exit status; -1 if a signal ended it.
func (p *Process) Wait() (int, error) {
	select {
	case <-p.exited:
		return p.program.Command.ProcessState.ExitCode(), nil
	case <-time.After(Patience):
		return 0, p.withLog(fmt.Errorf("%s still runs after %v", p.program.Name, Patience))
	}
}

// failure is the error of a process that has ended and should not have.
func (p *Process) failure() error {
	<-p.exited
	return p.withLog(fmt.Errorf("%s has ended (%v)", p.program.Name, p.program.Command.ProcessState))
}

// withLog adds the end of the log to an error.
func (p *Process) withLog(err error) error {
	text := p.Stdout() + p.Stderr()
	if p.program.Log != "" {
		data, readErr := os.ReadFile(p.program.Log)
		if readErr != nil {
			return errors.Join(err, readErr)
		}
		text = string(data)
	}
	if taken := p.program.PortTaken; taken != "" && strings.Contains(text, taken) {
		err = fmt.Errorf("%s: %w", p.program.Name, ErrPortTaken)
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return fmt.Errorf("%w; its log ends with:\n%s", err, strings.Join(lines[max(0, len(lines)-30):], "\n"))
}

// Signal sends a signal.
func (p *Process) Signal(sig os.Signal) error {
	err := p.program.Command.Process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return p.failure()
	}
	return err
}

// Stop sends SIGTERM and waits for the end. A process that does not obey is killed, which is an error. A
// frozen one must thaw first.
func (p *Process) Stop() error {
	if p.frozen {
		return fmt.Errorf("%s is frozen: Thaw it first", p.program.Name)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	status, err := p.Wait()
	if err != nil {
		p.Close()
		return err
	}
	if status != p.program.Stopped {
		return p.failure()
	}
	return nil
}

// Kill ends the process at once, as kill -9 does, even a frozen one. It is an error if it had ended before.
func (p *Process) Kill() error {
	if p.Ended() {
		return p.failure()
	}
	p.Close()
	return nil
}

// Close kills the process if it has not ended. It may be called again.
func (p *Process) Close() {
	_ = p.program.Command.Process.Kill() // it may have ended by itself
	<-p.exited
}

// newFolder makes a folder in dir and returns a path that is valid from any working folder.
func newFolder(dir, prefix string) (string, error) {
	folder, err := os.MkdirTemp(dir, prefix)
	if err != nil {
		return "", err
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(folder)
}
