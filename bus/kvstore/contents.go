package kvstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// readRounds is how often the list of keys may change while they are read.
	readRounds = 10
	// atOnce is how many records are read or written at a time.
	atOnce = 64
)

// Progress is called with how far a long work is. Calls may come from several goroutines.
type Progress func(bucket string, done, total int)

// readBucket reads the last message of each key, in the order of keys, from the leader. It is complete when a list of
// the keys that was made after the reading has no other one.
func readBucket(ctx context.Context, cfg Config, bucket string, progress Progress) ([]BackupRecord, error) {
	var records []BackupRecord // in the order of reading
	read := make(map[string]bool)
	for range readRounds {
		more, err := readOnce(ctx, cfg, bucket, read, progress)
		if err != nil {
			return nil, err
		}
		if len(more) == 0 {
			slices.SortFunc(records, func(x, y BackupRecord) int { return strings.Compare(x.Key, y.Key) })
			return records, nil
		}
		records = append(records, more...)
	}
	return nil, errors.New("records are added faster than they can be read: try again when fewer tags are created")
}

// readOnce reads the keys that there are now and that were not read before, and notes that they are.
func readOnce(
	ctx context.Context, cfg Config, bucket string, read map[string]bool, progress Progress,
) (records []BackupRecord, err error) {
	leader, err := leaderOf(ctx, cfg.JS, bucket)
	if err != nil {
		return nil, err
	}
	list, err := keys(ctx, cfg.JS, bucket)
	if err != nil {
		return nil, err
	}
	var missing []string
	for key := range list {
		if !read[key] && !strings.HasPrefix(key, apart) { // what is no tag is about this very bucket
			missing = append(missing, key)
		}
	}
	found := make([]*BackupRecord, len(missing)) // nil: removed since it was listed
	err = parallel(ctx, len(missing), func(ctx context.Context, i int) (err error) {
		found[i], err = lastRecord(ctx, leader, bucket, missing[i])
		progress(bucket, len(read)+i+1, len(list))
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, r := range found {
		if read[missing[i]] = true; r != nil {
			records = append(records, *r)
		}
	}
	return records, nil
}

// lastRecord reads the last message of a key from the leader; nil: there is none.
func lastRecord(ctx context.Context, leader jetstream.Stream, bucket, key string) (*BackupRecord, error) {
	msg, err := leader.GetLastMsgForSubject(ctx, subjectOf(bucket)+key)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", key, err)
	}
	return &BackupRecord{bucket, key, msg.Data, msg.Header.Get("KV-Operation") != "", msg.Sequence}, nil
}

// keys returns the keys of a bucket, including deleted ones. It asks the server only for the names.
func keys(ctx context.Context, js jetstream.JetStream, bucket string) (map[string]bool, error) {
	stream, err := js.Stream(ctx, streamOf(bucket))
	if err != nil {
		return nil, err
	}
	subject := subjectOf(bucket)
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(subject+">"))
	if err != nil {
		return nil, err
	}
	keys := make(map[string]bool, len(info.State.Subjects))
	for s := range info.State.Subjects {
		keys[strings.TrimPrefix(s, subject)] = true
	}
	return keys, nil
}

// parallel calls f for each number below n, atOnce at a time, until one returns an error.
func parallel(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(atOnce, n) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := f(ctx, i); err != nil {
					fail(err)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
