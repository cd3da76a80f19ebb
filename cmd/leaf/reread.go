package main

import (
	"context"
	"log/slog"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/internal/cli"
)

// rereadEvery is how soon a changed file counts.
const rereadEvery = time.Second

// reread is a value that comes from files, and follows them, so that a rotation needs no restart.
// Readers never wait for a disk.
type reread[T any] struct {
	log   *slog.Logger
	what  string
	read  func() (T, error)
	value atomic.Pointer[T]
}

// newReread reads the value for the first time. Call run.
func newReread[T any](log *slog.Logger, what string, read func() (T, error)) (*reread[T], error) {
	value, err := read()
	if err != nil {
		return nil, cli.UsageError{Err: err}
	}
	r := &reread[T]{log: log, what: what, read: read}
	r.value.Store(&value)
	return r, nil
}

func (r *reread[T]) get() T { return *r.value.Load() }

// run reads the value again until the context is done. If that fails, the last value stays.
func (r *reread[T]) run(ctx context.Context) error {
	failed := "" // as it was logged
	for tick := time.Tick(rereadEvery); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
		value, err := r.read()
		switch {
		case err != nil && err.Error() != failed:
			failed = err.Error()
			r.log.Warn(r.what+" cannot be read again, so the last ones stay", "error", err)
		case err == nil && (failed != "" || !reflect.DeepEqual(value, r.get())):
			failed = ""
			r.value.Store(&value)
			r.log.Info(r.what + " were read again")
		}
	}
}
