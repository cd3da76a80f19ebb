package kvstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/wire"
)

// Restored is what [Restore] did.
type Restored struct {
	Created   int `json:"created"` // records
	Raised    int `json:"raised"`
	Unchanged int `json:"unchanged"`
	// Behind are the tags of which somebody knows more IDs than the backup and JetStream.
	Behind []string `json:"-"`
	// Damaged are records that JetStream has and that cannot be read. They stay as they are: what
	// they said may be above the backup.
	Damaged []string `json:"damaged"`
}

// restoreOrder writes the records that others depend on first. The master key comes before opaque
// tags. The record of the installation comes last, because generators wait for it.
var restoreOrder = []string{wire.BucketKeys, wire.BucketWorkers, wire.BucketTags, wire.BucketInstallation}

// Restore puts the records of a backup back. It makes missing buckets as generators make them. A
// record that is there is raised, and nothing is lowered: so it can be repeated, also while
// generators run. known is the end of all ranges of each tag that somebody knows: the records of
// these tags are raised to it. If a record contradicts the backup, the error matches
// [allocator.ErrRefused], and nothing was written.
func Restore(ctx context.Context, cfg Config, b Backup, known map[string]int64, progress Progress) (done Restored,
	err error) {
	done.Damaged = []string{} // in JSON [], not null
	work := make(map[string][]Record)
	for _, r := range b.Records {
		work[r.Bucket] = append(work[r.Bucket], r)
		if r.Bucket == wire.BucketTags {
			if _, _, err := decodeRecord(r.Key, r.Value); errors.Is(err, allocator.ErrNewer) {
				return done, fmt.Errorf("nothing was restored: %w: use that version", err)
			}
		}
	}
	if _, err := FirstOfTags(ctx, cfg, b.Installation); err != nil {
		return done, fmt.Errorf("nothing was restored: %w", err)
	}
	for _, name := range buckets {
		if err := compare(ctx, cfg, name, work[name]); err != nil {
			return done, fmt.Errorf("nothing was restored: %w", err)
		}
	}
	if slices.Contains(b.Buckets, wire.BucketTags) { // JetStream may have tags that the backup lacks
		lacks := maps.Clone(known)
		for _, r := range work[wire.BucketTags] {
			delete(lacks, r.Key)
		}
		for tag := range lacks {
			work[wire.BucketTags] = append(work[wire.BucketTags], Record{Bucket: wire.BucketTags, Key: tag})
		}
	}
	var tags uint64 // the bucket into which they were restored
	for _, name := range restoreOrder {
		if !slices.Contains(b.Buckets, name) {
			continue
		}
		in, err := open(ctx, cfg, name)
		if err == nil {
			err = in.restoreAll(ctx, work[name], known, &done, progress)
		}
		if err != nil {
			return done, fmt.Errorf("bucket %s: %w; it is safe to repeat the restore", name, err)
		}
		if name == wire.BucketTags {
			tags = in.first
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
func compare(ctx context.Context, cfg Config, name string, records []Record) error {
	in, err := find(ctx, cfg, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return parallel(ctx, len(records), func(ctx context.Context, i int) error {
		is, err := in.get(ctx, records[i].Key)
		if err == nil {
			_, err = in.merge(records[i], is, nil)
		}
		if errors.Is(err, allocator.ErrDamaged) { // it stays as it is
			return nil
		}
		return err
	}, func(int) {})
}

// restoreAll restores records, and counts them in done.
func (b bucket) restoreAll(
	ctx context.Context, records []Record, known map[string]int64, done *Restored, progress Progress,
) error {
	each := make([]Restored, len(records))
	err := parallel(ctx, len(records), func(ctx context.Context, i int) (err error) {
		each[i], err = b.restore(ctx, records[i], known)
		return err
	}, func(ended int) { progress(b.name, ended, len(records)) })
	for _, one := range each {
		done.add(one)
	}
	slices.Sort(done.Behind)
	slices.Sort(done.Damaged)
	return err
}

func (r *Restored) add(more Restored) {
	r.Created, r.Raised, r.Unchanged = r.Created+more.Created, r.Raised+more.Raised, r.Unchanged+more.Unchanged
	r.Behind, r.Damaged = append(r.Behind, more.Behind...), append(r.Damaged, more.Damaged...)
}

// restore creates or raises a record.
func (b bucket) restore(ctx context.Context, r Record, known map[string]int64) (done Restored, err error) {
	err = b.change(ctx, r.Key, func(is Record) ([]byte, error) {
		done = Restored{}
		next, err := b.merge(r, is, known)
		switch {
		case errors.Is(err, allocator.ErrDamaged):
			done.Damaged = []string{b.name + " " + r.Key}
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("key %s: %w", r.Key, err)
		case next == nil:
			return nil, nil
		case is.revision != 0 && bytes.Equal(next, is.Value):
			done.Unchanged = 1
			return nil, nil
		case len(is.Value) == 0:
			done.Created = 1
		default:
			done.Raised = 1
		}
		without, err := b.merge(r, is, nil)
		if !bytes.Equal(next, without) {
			done.Behind = []string{r.Key}
		}
		return next, err
	})
	if err != nil {
		return Restored{}, err
	}
	return done, nil
}

// merge returns what a record is after the restore, where is is what there is, and the backup may
// have nothing (a nil value). nil: there is still nothing. An error that matches
// [allocator.ErrRefused] says that the two contradict each other, one that matches
// [allocator.ErrDamaged] that what there is cannot be read.
func (b bucket) merge(r, is Record, known map[string]int64) ([]byte, error) {
	var has []byte // nil: there is none
	if len(is.Value) > 0 {
		has = is.Value
	}
	switch b.name {
	case wire.BucketTags:
		return mergeTag(r, has, known[r.Key], b.first)
	case wire.BucketWorkers:
		return mergeWorker(r, has)
	case wire.BucketKeys:
		if has != nil && !bytes.Equal(has, r.Value) {
			return nil, fmt.Errorf("%w: the master key of opaque tags (bucket %s) is not the one of the backup, and two make "+
				"the same IDs: see docs/operate.md#lost-keys", allocator.ErrRefused, b.name)
		}
		return r.Value, nil
	}
	var now, was Installation
	if has == nil || json.Unmarshal(has, &now) != nil || json.Unmarshal(r.Value, &was) != nil { // damaged by hand
		return r.Value, nil
	}
	if now.ID != was.ID {
		return nil, fmt.Errorf("%w: this NATS account has installation %s, and the backup is of installation %s: "+
			"name the right --server and account", allocator.ErrRefused, now.ID, was.ID)
	}
	return has, nil
}

// mergeTag merges the records of a tag for the bucket with this first sequence. A record for
// another bucket counts as none.
func mergeTag(r Record, has []byte, known int64, first uint64) ([]byte, error) {
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
func mergeWorker(r Record, has []byte) ([]byte, error) {
	if has == nil {
		return r.Value, nil
	}
	was, err := decodeWorker(r)
	if err != nil {
		return has, nil
	}
	is, err := decodeWorker(Record{Key: r.Key, Value: has})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", allocator.ErrDamaged, err)
	}
	if was.ReservedUntil <= is.ReservedUntil {
		return has, nil
	}
	is.ReservedUntil = was.ReservedUntil
	return json.Marshal(is.Record)
}
