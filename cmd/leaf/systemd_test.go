package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// A process that only a restart helps does not report that it is alive.
func TestWatchdogOfADeadProcess(t *testing.T) {
	env := map[string]string{
		"NOTIFY_SOCKET": filepath.Join(t.TempDir(), "notify"), "WATCHDOG_USEC": "3000", "WATCHDOG_PID": strconv.Itoa(os.Getpid())}
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: env["NOTIFY_SOCKET"], Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := newSupervisor(func(name string) string { return env[name] })
	env["WATCHDOG_PID"] = "1"
	if other := newSupervisor(func(name string) string { return env[name] }); other.every != 0 {
		t.Errorf("a process that systemd does not watch reports every %v", other.every)
	}
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	err = s.watch(ctx, func() error {
		if asked++; asked == 1 {
			return nil
		}
		if asked == 5 {
			cancel()
		}
		return errors.New("dead")
	})
	if err := errors.Join(err, s.notify("END")); err != nil {
		t.Fatal(err)
	}
	var heard []string
	for buf := make([]byte, 100); !slices.Contains(heard, "END"); {
		n, err := l.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		heard = append(heard, string(buf[:n]))
	}
	if len(heard) != 2 {
		t.Errorf("a process that was alive once, and then dead, reports %q", heard)
	}
}
