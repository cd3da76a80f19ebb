package mariadb

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// errPortTaken is that of a server whose port another process has.
var errPortTaken = errors.New("the port is taken by another process")

// process is a running mariadbd.
type process struct {
	cmd    *exec.Cmd
	log    string        // the path of what it writes
	exited chan struct{} // closed when it has
}

// launch starts mariadbd, which logs to a new file in place of the last run's.
func launch(log string, args []string) (*process, error) {
	cmd, err := command("mariadbd", args...)
	if err != nil {
		return nil, err
	}
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file
	dieWithParent(cmd)
	p := &process{cmd: cmd, log: log, exited: make(chan struct{})}
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
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	defer close(p.exited)
	_ = p.cmd.Wait() // the status is in cmd.ProcessState
}

// command is one of MariaDB's programs that reads no configuration files.
func command(name string, args ...string) (*exec.Cmd, error) {
	path, err := find(name)
	if err != nil {
		return nil, err
	}
	first := []string{"--no-defaults"} // it counts only there
	if os.Geteuid() == 0 {
		first = append(first, "--user=root") // mariadbd refuses root unless told
	}
	return exec.Command(path, append(first, args...)...), nil
}

// find looks where Debian keeps servers too, which is often not on the PATH.
func find(name string) (string, error) {
	for _, path := range []string{name, "/usr/sbin/" + name, "/usr/local/sbin/" + name} {
		if found, err := exec.LookPath(path); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("%s is not installed: make test installs it, and so does "+
		"apt-get install mariadb-server-core mariadb-client-core", name)
}

// install makes a data folder with the tables that every server has.
func install(data, temp string) error {
	cmd, err := command("mariadb-install-db", "--datadir="+data, "--tmpdir="+temp,
		"--auth-root-authentication-method=normal", "--skip-test-db", logSize,
		// Run by root, it would otherwise change the owner of a plugin of the
		// system's own server.
		"--rpm")
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db: %w\n%s", err, out) // the cause comes first
	}
	return nil
}

func (p *process) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// failure says why a process has ended that should not have.
func (p *process) failure() error {
	log := p.logTail()
	if strings.Contains(log, "Bind on TCP/IP port") {
		return fmt.Errorf("mariadbd: %w; its log ends with:\n%s", errPortTaken, log)
	}
	return fmt.Errorf("mariadbd has ended (%v); its log ends with:\n%s", p.cmd.ProcessState, log)
}

func (p *process) logTail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return tail(text)
}

// tail is the last lines of a text.
func tail(text []byte) string {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	last := bytes.Join(lines[max(0, len(lines)-30):], []byte("\n"))
	return cmp.Or(string(last), "(nothing)")
}

func (p *process) stop() error {
	if p.ended() {
		return p.failure()
	}
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.exited:
	case <-time.After(patience):
		err := fmt.Errorf("mariadbd did not stop in %v and was killed; its log ends with:\n%s", patience, p.logTail())
		p.kill()
		return err
	}
	if !p.cmd.ProcessState.Success() {
		return p.failure()
	}
	return nil
}

// kill ends the process at once, even a frozen one.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.exited
}

func (p *process) signal(sig os.Signal) error {
	err := p.cmd.Process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		<-p.exited
		return p.failure()
	}
	return err
}
