package kvstore

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// watchQuiet is how long drain waits for a value of a watch that is never closed.
const watchQuiet = time.Second

var errWatchEnded = errors.New("the watch on the bucket ended")

// watchAll begins a watch on all keys of a bucket. end ends it and waits for its end. Call end.
func watchAll(ctx context.Context, kv jetstream.KeyValue) (watch jetstream.KeyWatcher, end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	watch, err = kv.WatchAll(ctx)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return watch, func() {
		cancel() // Stop would wait for an answer of the server
		drain(watch)
	}, nil
}

// drain reads the values of a watch until it is closed: the goroutine of a watch with a full
// channel would never end. The library never closes a watch if its context ended at the
// moment in which it was made. Such a watch brings no values.
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
