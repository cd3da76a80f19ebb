//go:build unix

package daemon

import (
	"errors"
	"syscall"
)

// Freeze stops every thread of the process where it is, as if its machine hung:
// connections stay open and nothing is answered, until [Process.Thaw]. It
// returns when no thread runs any more.
func (p *Process) Freeze() error {
	if p.frozen {
		return nil
	}
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.program.Command.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil, !status.Stopped():
			<-p.exited
			return p.failure()
		default:
			p.frozen = true
			return nil
		}
	}
}

// Thaw lets a frozen process go on; it then answers what it was asked meanwhile.
func (p *Process) Thaw() error {
	if err := p.signal(syscall.SIGCONT); err != nil {
		return err
	}
	p.frozen = false
	return nil
}
