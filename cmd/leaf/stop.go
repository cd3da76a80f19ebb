package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/leafbus/leafbus/bus/embedded"
	"github.com/leafbus/leafbus/internal/cli"
)

// logStop logs that the generator drains, as soon as the context is done. What it returns logs that it has stopped,
// after that.
func logStop(ctx context.Context, log *slog.Logger) (stopped func()) {
	logged := make(chan struct{})
	forget := context.AfterFunc(ctx, func() {
		defer close(logged)
		log.Info("stopping: accepted requests are answered first; a second signal ends the process at once",
			"signal", context.Cause(ctx))
	})
	return func() {
		if !forget() {
			<-logged
			log.Info("stopped")
		}
	}
}

// stopSlack is how much longer than its drain, of NATS and of HTTP, a stop may take.
const stopSlack = 30 * time.Second

// endAnyway ends the process this long after the context is done, by a signal or because something failed, unless ended
// is called before. It is for the waits for a disk that have no bound: those of the embedded NATS server and those of a
// start.
func endAnyway(ctx context.Context, after time.Duration, log *slog.Logger) (ended func()) {
	done := make(chan struct{})
	forget := context.AfterFunc(ctx, func() {
		select {
		case <-done:
		case <-time.After(after):
			log.Error("the stop hangs, and the process ends anyway: does its disk hang?", "after", after, "why",
				context.Cause(ctx))
			os.Exit(cli.ExitFailed)
		}
	})
	return func() {
		forget()
		close(done)
	}
}

// together runs all until the context is done, or until one ends. Then it calls stop, which ends the context and so the
// others, and begins the time that a stop may take.
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
