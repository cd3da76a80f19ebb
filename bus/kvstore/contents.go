package kvstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// readRounds is how often the list of keys may change while they are read.
	readRounds = 10
	// atOnce is how many records are read or written at a time.
	atOnce = 64
)

// Progress is called with how far a long work is. The calls for a bucket come one after the other,
// and done grows.
type Progress func(bucket string, done, total int)

// readAll reads all records, in the order of keys, from the leader. It is complete when a list of
// the keys that was made after the reading has no other one.
func (b bucket) readAll(ctx context.Context, progress Progress) ([]Record, error) {
	var records []Record // in the order of reading
	known := make(map[string]bool)
	for range readRounds {
		more, err := b.read(ctx, known, progress)
		if err != nil {
			return nil, err
		}
		if len(more) == 0 {
			slices.SortFunc(records, func(x, y Record) int { return strings.Compare(x.Key, y.Key) })
			return records, nil
		}
		records = append(records, more...)
	}
	return nil, errors.New("records are added faster than they can be read: try again when fewer tags are created")
}

// read reads the records of the keys that there are now and that are not known, and makes them
// known.
func (b bucket) read(ctx context.Context, known map[string]bool, progress Progress) ([]Record, error) {
	subject := subjectOf(b.name)
	info, err := b.leader.Info(ctx, jetstream.WithSubjectFilter(subject+">"))
	if err != nil {
		return nil, err
	}
	b.leader.CachedInfo().Config.AllowDirect = false // as in find
	var keys []string
	for s := range info.State.Subjects {
		key := strings.TrimPrefix(s, subject)
		if !known[key] && !strings.HasPrefix(key, apart) { // what is no tag is about this very bucket
			keys = append(keys, key)
		}
	}
	records, before := make([]Record, len(keys)), len(known)
	err = parallel(ctx, len(keys), func(ctx context.Context, i int) (err error) {
		records[i], err = b.get(ctx, keys[i])
		return err
	}, func(ended int) { progress(b.name, before+ended, before+len(keys)) })
	for _, key := range keys {
		known[key] = true
	}
	return slices.DeleteFunc(records, func(r Record) bool { return r.revision == 0 }), err // removed since
}

// parallel calls f for each number below n, atOnce at a time, until one returns an error. After
// each that succeeds it calls done with how many have.
func parallel(ctx context.Context, n int, f func(ctx context.Context, i int) error, done func(ended int)) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var all sync.WaitGroup
	var mu sync.Mutex // guards the counts, and done
	begun, ended := 0, 0
	next := func() int {
		mu.Lock()
		defer mu.Unlock()
		begun++
		return begun - 1
	}
	for range min(atOnce, n) {
		all.Go(func() {
			for i := next(); i < n && ctx.Err() == nil; i = next() {
				if err := f(ctx, i); err != nil {
					fail(err)
					return
				}
				mu.Lock()
				ended++
				done(ended)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
