package kvstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/wire"
	"github.com/leafbus/leafbus/snowflake"
)

// Restored is what [Restore] did.
type Restored struct {
	Created, Raised, Unchanged int // records
	// Behind are the tags of which somebody knows more IDs than the backup and JetStream.
	Behind []string
	// Damaged are records that JetStream has and that cannot be read. They stay as they are: what they said may be
	// above the backup.
	Damaged []string
}

// restoreOrder writes the records that others depend on first. The master key comes before opaque tags. The record of
// the installation comes last, because generators wait for it.
var restoreOrder = []string{wire.BucketKeys, wire.BucketWorkers, wire.BucketTags, wire.BucketInstallation}

// Restore puts the records of a backup back. It makes missing buckets as generators make them. A record that is there
// is raised, and nothing is lowered: so it can be repeated, also while generators run. known is the end of all ranges
// of each tag that somebody knows: the records of these tags are raised to it. If a record contradicts the backup,
// the error matches [allocator.ErrRefused], and nothing was written.
func Restore(ctx context.Context, cfg Config, b Backup, known map[string]int64, progress Progress) (done Restored,
	err error) {
	work := make(map[string][]BackupRecord)
	for _, r := range b.Records {
		work[r.Bucket] = append(work[r.Bucket], r)
		if r.Bucket == wire.BucketTags {
			if _, _, err := decodeRecord(r.Key, r.Value); errors.Is(err, allocator.ErrNewer) {
				return done, fmt.Errorf("nothing was restored: %w: use that version", err)
			}
		}
	}
	if err := checkTags(ctx, cfg, b.Installation); err != nil {
		return done, fmt.Errorf("nothing was restored: %w", err)
	}
	for _, bucket := range backupBuckets {
		if err := compare(ctx, cfg, bucket, work[bucket]); err != nil {
			return done, fmt.Errorf("nothing was restored: %w", err)
		}
	}
	if slices.Contains(b.Buckets, wire.BucketTags) { // JetStream may have tags that the backup lacks
		lacks := maps.Clone(known)
		for _, r := range work[wire.BucketTags] {
			delete(lacks, r.Key)
		}
		for tag := range lacks {
			work[wire.BucketTags] = append(work[wire.BucketTags], BackupRecord{Bucket: wire.BucketTags, Key: tag})
		}
	}
	var tags uint64 // the bucket into which they were restored
	for _, bucket := range restoreOrder {
		if !slices.Contains(b.Buckets, bucket) {
			continue
		}
		first, err := restoreBucket(ctx, cfg, bucket, work[bucket], known, &done, progress)
		if err != nil {
			return done, fmt.Errorf("bucket %s: %w; it is safe to repeat the restore", bucket, err)
		}
		if bucket == wire.BucketTags {
			tags = first
		}
	}
	if slices.Contains(b.Buckets, wire.BucketTags) {
		if err := endLoss(ctx, cfg, tags); err != nil {
			return done, fmt.Errorf("%w; it is safe to repeat the restore", err)
		}
	}
	return done, nil
}

// compare returns an error if a record of the backup contradicts one that there is.
func compare(ctx context.Context, cfg Config, bucket string, records []BackupRecord) error {
	in, err := placeOf(ctx, cfg, bucket)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("bucket %s: %w", bucket, err)
	}
	return parallel(ctx, len(records), func(ctx context.Context, i int) error {
		is, err := lastRecord(ctx, in.leader, bucket, records[i].Key)
		if err == nil && is != nil && !is.Removed {
			_, err = in.merge(records[i], is.Value, nil)
		}
		if errors.Is(err, allocator.ErrDamaged) { // it stays as it is
			return nil
		}
		return err
	})
}

// place is a bucket that records are restored into.
type place struct {
	leader jetstream.Stream
	first  uint64 // of the bucket of the tags, see tagsBucket
}

func placeOf(ctx context.Context, cfg Config, bucket string) (place, error) {
	leader, err := leaderOf(ctx, cfg.JS, bucket)
	if err != nil {
		return place{}, err
	}
	return place{leader, leader.CachedInfo().Config.FirstSeq}, nil
}

// openBackedUp opens a bucket, and creates it with the settings that generators use.
func openBackedUp(ctx context.Context, cfg Config, bucket string) (err error) {
	switch bucket {
	case wire.BucketInstallation:
		_, err = openInstallation(ctx, cfg)
	case wire.BucketTags:
		_, err = openRecords(ctx, cfg)
	case wire.BucketWorkers:
		_, err = openWorkers(ctx, cfg)
	case wire.BucketKeys:
		_, err = openKeys(ctx, cfg)
	}
	return err
}

// restoreBucket returns the first sequence of the bucket, too.
func restoreBucket(
	ctx context.Context, cfg Config, bucket string, records []BackupRecord, known map[string]int64, done *Restored,
	progress Progress,
) (first uint64, err error) {
	if err := openBackedUp(ctx, cfg, bucket); err != nil {
		return 0, err
	}
	kv, err := cfg.JS.KeyValue(ctx, bucket)
	if err != nil {
		return 0, err
	}
	in, err := placeOf(ctx, cfg, bucket)
	if err != nil {
		return 0, err
	}
	results, behind := make([]result, len(records)), make([]bool, len(records))
	var finished atomic.Int64
	err = parallel(ctx, len(records), func(ctx context.Context, i int) (err error) {
		results[i], behind[i], err = in.restore(ctx, kv, records[i], known)
		progress(bucket, int(finished.Add(1)), len(records))
		return err
	})
	for i, r := range results {
		switch r {
		case resultCreated:
			done.Created++
		case resultRaised:
			done.Raised++
		case resultUnchanged:
			done.Unchanged++
		case resultDamaged:
			done.Damaged = append(done.Damaged, bucket+" "+records[i].Key)
		}
		if behind[i] {
			done.Behind = append(done.Behind, records[i].Key)
		}
	}
	return in.first, err
}

// result is what became of a record.
type result int

const (
	resultNone result = iota
	resultCreated
	resultRaised
	resultUnchanged
	resultDamaged
)

// restore creates or raises a record by compare-and-set. A write without an answer comes back as a conflict, and is
// then found.
func (in place) restore(
	ctx context.Context, kv jetstream.KeyValue, r BackupRecord, known map[string]int64,
) (_ result, behind bool, err error) {
	for {
		is, err := lastRecord(ctx, in.leader, r.Bucket, r.Key)
		if err != nil {
			return resultNone, false, err
		}
		var has []byte
		var revision uint64
		if is != nil {
			revision = is.revision
		}
		if is != nil && !is.Removed {
			has = is.Value
		}
		if r.Removed {
			if is != nil {
				return resultUnchanged, false, nil
			}
			return resultCreated, false, kv.Delete(ctx, r.Key)
		}
		next, err := in.merge(r, has, known)
		switch {
		case errors.Is(err, allocator.ErrDamaged):
			return resultDamaged, false, nil
		case err != nil:
			return resultNone, false, fmt.Errorf("key %s: %w", r.Key, err)
		case next == nil:
			return resultNone, false, nil
		case has != nil && bytes.Equal(next, has):
			return resultUnchanged, false, nil
		}
		_, err = kv.Update(ctx, r.Key, next, revision)
		switch {
		case err == nil:
			without, err := in.merge(r, has, nil)
			if has == nil {
				return resultCreated, !bytes.Equal(next, without), err
			}
			return resultRaised, !bytes.Equal(next, without), err
		case !mismatch(err):
			return resultNone, false, fmt.Errorf("key %s: %w", r.Key, err)
		}
	}
}

// merge returns what a record is after the restore, where has is what there is (nil: nothing), and the backup may
// have nothing (a nil value). nil: there is still nothing. An error that matches [allocator.ErrRefused] says that the
// two contradict each other, one that matches [allocator.ErrDamaged] that what there is cannot be read.
func (in place) merge(r BackupRecord, has []byte, known map[string]int64) ([]byte, error) {
	switch r.Bucket {
	case wire.BucketTags:
		return mergeTag(r, has, known[r.Key], in.first)
	case wire.BucketWorkers:
		return mergeWorker(r, has)
	case wire.BucketKeys:
		if has != nil && !bytes.Equal(has, r.Value) {
			return nil, fmt.Errorf("%w: the master key of opaque tags (bucket %s) is not the one of the backup, and two make "+
				"the same IDs: "+
				"see docs/operate.md#lost-keys", allocator.ErrRefused, wire.BucketKeys)
		}
		return r.Value, nil
	}
	var is, was Installation
	if has == nil || json.Unmarshal(has, &is) != nil || json.Unmarshal(r.Value, &was) != nil { // damaged by hand
		return r.Value, nil
	}
	if is.ID != was.ID {
		return nil, fmt.Errorf("%w: this NATS account has installation %s, and the backup is of installation %s: "+
			"name the right --server and account", allocator.ErrRefused, is.ID, was.ID)
	}
	return has, nil
}

// mergeTag merges the records of a tag for the bucket with this first sequence. A record for another bucket counts as
// none.
func mergeTag(r BackupRecord, has []byte, known int64, first uint64) ([]byte, error) {
	was, _, lacks := decodeRecord(r.Key, r.Value)
	is, of, err := decodeRecord(r.Key, has)
	none := has == nil || of != first
	switch {
	case has != nil && err != nil:
		return nil, err
	case none && lacks != nil: // no tag may begin at 1 in the place of a damaged record
		return r.Value, nil
	case none:
		is = was
	case lacks != nil:
		was = is
	}
	t, err := is.Merge(was, known)
	if err != nil || !none && t == is {
		return has, err
	}
	return encodeTag(t, first)
}

// mergeWorker keeps the holder that there is.
func mergeWorker(r BackupRecord, has []byte) ([]byte, error) {
	var was, is snowflake.Record
	if has == nil {
		return r.Value, nil
	}
	if json.Unmarshal(r.Value, &was) != nil {
		return has, nil
	}
	if err := json.Unmarshal(has, &is); err != nil {
		return nil, fmt.Errorf("%w: %w", allocator.ErrDamaged, err)
	}
	if was.ReservedUntil <= is.ReservedUntil {
		return has, nil
	}
	is.ReservedUntil = was.ReservedUntil
	return json.Marshal(is)
}
