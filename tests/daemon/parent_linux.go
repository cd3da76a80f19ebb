package daemon

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the system kill the process when the thread that starts
// it ends, so that no server outlives a test that crashed.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
