package faults

import (
	"errors"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/leafbus/leafbus/tests/kit"
)

// systemd hears that a generator is ready, that it is alive, and that it stops. Its SIGHUP, a reload, ends nothing.
func TestSystemdIsNotified(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	kit.Must(t, err)
	defer l.Close()
	kit.Must(t, l.SetReadDeadline(time.Now().Add(kit.Patience)))
	p := kit.Start(t, kit.Command(t, t.TempDir(), []string{"NOTIFY_SOCKET=" + socket, "WATCHDOG_USEC=100000"},
		"serve", "--listen", "127.0.0.1:0", "--http", ""))
	heard := func(state string) {
		t.Helper()
		for buf := make([]byte, 100); ; {
			n, err := l.Read(buf)
			kit.Must(t, err)
			if string(buf[:n]) == state {
				return
			}
		}
	}
	heard("READY=1")
	heard("WATCHDOG=1")
	kit.Must(t, p.Signal(syscall.SIGHUP))
	heard("WATCHDOG=1")
	heard("WATCHDOG=1")
	kit.Must(t, p.Signal(syscall.SIGTERM))
	heard("STOPPING=1")
	if status, err := p.Wait(); status != 0 || err != nil {
		t.Error(errors.Join(err, errors.New(p.Stderr())))
	}
}
