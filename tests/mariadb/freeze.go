//go:build unix

package mariadb

import (
	"errors"
	"syscall"
)

// freeze returns when no thread of the process runs any more.
func (p *process) freeze() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil, !status.Stopped():
			<-p.exited
			return p.failure()
		default:
			return nil
		}
	}
}

func (p *process) thaw() error { return p.signal(syscall.SIGCONT) }
