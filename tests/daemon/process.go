// Package daemon runs the servers that tests start: processes that end with the
// test binary, whatever ends that, and that can be killed and frozen.
package daemon

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
)

// Patience is how long a server may take to start, to stop or to answer.
const Patience = testkit.Patience

// Program is how a server is run.
type Program struct {
	Name      string // of the server, for errors
	Command   *exec.Cmd
	Log       string // the path of a file for what it writes
	PortTaken string // what it writes where another process has its port; empty if nothing
	Stopped   int    // its exit status when it was told to stop
}

// Process is a server that runs or has run. What starts, stops and signals it
// may not be called concurrently.
type Process struct {
	program Program
	exited  chan struct{} // closed when it has
	frozen  bool
}

// Launch starts a server, whose log takes the place of the last run's.
func Launch(program Program) (*Process, error) {
	file, err := os.Create(program.Log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	program.Command.Stdout, program.Command.Stderr = file, file
	dieWithParent(program.Command)
	p := &Process{program: program, exited: make(chan struct{})}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// run starts the process and lasts as long as it. To Linux the parent is the
// thread that starts a process: while run has it to itself, nothing but the end
// of the whole test ends it.
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

// NewFolder makes a folder in dir and returns the path by which a server will
// know it, whatever its working folder.
func NewFolder(dir, prefix string) (string, error) {
	folder, err := os.MkdirTemp(dir, prefix)
	if err != nil {
		return "", err
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(folder)
}

// Await asks until ready returns nil. It is an error if the process ends or
// [Patience] does. Whatever else has the port may accept connections and say
// nothing, so each answer must come within a second.
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
			return p.withLog(fmt.Errorf("%s does not answer after %v (%w)", p.program.Name, Patience, err))
		}
	}
}

// Running says whether the process has neither ended nor been frozen.
func (p *Process) Running() bool { return !p.Ended() && !p.frozen }

// Ended says whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// failure says why a process has ended that should not have.
func (p *Process) failure() error {
	return p.withLog(fmt.Errorf("%s has ended (%v)", p.program.Name, p.program.Command.ProcessState))
}

// withLog adds to an error what the log tells of its cause.
func (p *Process) withLog(err error) error {
	text, readErr := os.ReadFile(p.program.Log)
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	if taken := p.program.PortTaken; taken != "" && bytes.Contains(text, []byte(taken)) {
		err = fmt.Errorf("%s: %w", p.program.Name, ErrPortTaken)
	}
	return fmt.Errorf("%w; its log ends with:\n%s", err, tail(text))
}

// tail is the last lines of a text.
func tail(text []byte) string {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	last := bytes.Join(lines[max(0, len(lines)-30):], []byte("\n"))
	return cmp.Or(string(last), "(nothing)")
}

// Stop tells the process to end and waits until it has. One that does not obey
// is killed, which is an error. A frozen one must thaw before.
func (p *Process) Stop() error {
	if p.frozen {
		return fmt.Errorf("%s is frozen: Thaw it before", p.program.Name)
	}
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.exited:
	case <-time.After(Patience):
		p.Close()
		return p.withLog(fmt.Errorf("%s did not stop in %v and was killed", p.program.Name, Patience))
	}
	if p.program.Command.ProcessState.ExitCode() != p.program.Stopped {
		return p.failure()
	}
	return nil
}

// Kill ends the process at once, as kill -9 does, even a frozen one, and waits
// for its end. It is an error if it had ended before.
func (p *Process) Kill() error {
	if p.Ended() {
		return p.failure()
	}
	p.Close()
	return nil
}

// Close kills the process if it has not ended.
func (p *Process) Close() {
	_ = p.program.Command.Process.Kill() // it may have ended by itself
	<-p.exited
}

func (p *Process) signal(sig os.Signal) error {
	err := p.program.Command.Process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		<-p.exited
		return p.failure()
	}
	return err
}
