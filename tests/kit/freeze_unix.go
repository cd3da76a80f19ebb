//go:build unix

package kit

import (
	"errors"
	"syscall"
)

// Freeze stops every thread of the process, as if its machine hung: connections stay open and nothing is
// answered, until Thaw. It returns when no thread runs any more.
func (p *Process) Freeze() error {
	if p.frozen {
		return nil
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.program.Command.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil, !status.Stopped():
			return p.failure()
		default:
			p.frozen = true
			return nil
		}
	}
}

// Thaw lets a frozen process go on. It then answers what it was asked meanwhile.
func (p *Process) Thaw() error {
	if err := p.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	p.frozen = false
	return nil
}
