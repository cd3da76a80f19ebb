package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/leafbus/leafbus/bus/embedded"
)

// stopSlack is how much longer than its drain, of NATS and of HTTP, a stop may take.
const stopSlack = 30 * time.Second

// endAnyway calls end this long after the context is done, by a signal or because something failed,
// unless ended is called before. It is for the waits for a disk that have no bound: those of the
// embedded NATS server and those of a start.
func endAnyway(ctx context.Context, after time.Duration, end func()) (ended func()) {
	done := make(chan struct{})
	context.AfterFunc(ctx, func() {
		select {
		case <-done:
		case <-time.After(after):
			end()
		}
	})
	return func() { close(done) }
}

// together runs all until the context is done, or until one ends. Then it calls stop, which ends
// the context and so the others, and begins the time that a stop may take.
func together(ctx context.Context, stop context.CancelCauseFunc, runs ...func(context.Context) error) error {
	ended := make(chan error, len(runs))
	for _, run := range runs {
		go func() { ended <- run(ctx) }()
	}
	var err error
	for range runs {
		err = errors.Join(err, <-ended)
		stop(err)
	}
	return err
}

// awaitRestart returns an error as soon as only a restart of this process helps its NATS server.
func (s *serving) awaitRestart(ctx context.Context) error {
	if s.owned.Server == nil {
		<-ctx.Done()
		return nil
	}
	if err := s.owned.Server.AwaitRestart(ctx); err != nil {
		return fmt.Errorf("this process ends so that its supervisor starts it again: %w", err)
	}
	return nil
}

// dead returns why only a restart of this process helps, or nil.
func (s *serving) dead() error {
	if s.owned.Server == nil {
		return nil
	}
	if err := s.owned.Server.Health(); errors.Is(err, embedded.ErrRestart) {
		return err
	}
	return nil
}

// supervisor is the systemd that started this process with Type=notify; without one, its methods do
// nothing. https://www.freedesktop.org/software/systemd/man/sd_notify.html has the protocol. Its
// methods are safe for concurrent use.
type supervisor struct {
	socket string        // its datagram socket; empty: there is none. Of one that begins with @, Go makes an abstract one
	every  time.Duration // how often it wants to hear that the process is alive; 0: not at all
}

// newSupervisor reads what systemd has put into the environment.
func newSupervisor(getenv func(string) string) supervisor {
	s := supervisor{socket: getenv("NOTIFY_SOCKET")}
	usec, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64)
	// WatchdogSec is for one process. A child that inherits the variable is another one.
	if pid := getenv("WATCHDOG_PID"); err == nil && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		s.every = time.Duration(usec) * time.Microsecond / 3 // one that is lost or late does no harm
	}
	return s
}

// notify sends a state, such as READY=1.
func (s supervisor) notify(state string) error {
	if s.socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("systemd cannot be notified: %w", err)
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}

// watch reports that the process is alive, as long as dead returns nil, until the context is done.
// After WatchdogSec without a report systemd kills the process and starts it again.
func (s supervisor) watch(ctx context.Context, dead func() error) error {
	if s.socket == "" || s.every <= 0 {
		<-ctx.Done()
		return nil
	}
	ticks := time.NewTicker(s.every)
	defer ticks.Stop()
	for {
		if dead() == nil {
			_ = s.notify("WATCHDOG=1") // the next one may arrive
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}
