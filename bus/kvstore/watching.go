package kvstore

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// watchQuiet is how long a watch that was ended may bring nothing before it is closed.
const watchQuiet = time.Second

var errWatchEnded = errors.New("the watch on the bucket ended")

// watchAll begins a watch on all keys of a bucket. end ends it, waits for that, and must be called.
func watchAll(ctx context.Context, kv jetstream.KeyValue) (watch jetstream.KeyWatcher, end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	watch, err = kv.WatchAll(ctx)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return watch, func() {
		cancel() // its Stop would wait for an answer of the server
		drain(watch)
	}, nil
}

// drain takes what a watch still brings until it is closed: one with more than it has room
// for would stay. The library never closes a watch whose context ended in the moment in
// which it was made. Such a watch brings nothing.
func drain(watch jetstream.KeyWatcher) {
	for {
		select {
		case _, ok := <-watch.Updates():
			if !ok {
				return
			}
		case <-time.After(watchQuiet):
			return
		}
	}
}
