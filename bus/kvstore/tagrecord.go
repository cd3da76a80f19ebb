package kvstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/wire"
)

// tagRecord is the JSON of a tag's record.
type tagRecord struct {
	// Bucket is the first sequence of the bucket that the record was written for. A write that was
	// sent before the bucket was made again may land in the new one, where it counts as no record.
	Bucket uint64 `json:"bucket,string"`
	allocator.Tag
}

// encodeTag returns the record of a tag for the bucket with this first sequence.
func encodeTag(t allocator.Tag, bucket uint64) ([]byte, error) {
	t.Format = allocator.RecordFormat
	return json.Marshal(tagRecord{bucket, t})
}

// decodeRecord reads a record, and for which bucket it was written. One that this package cannot
// have written is an error, ErrDamaged or ErrNewer: a guess could repeat IDs. The marker of a
// deletion has no data.
func decodeRecord(key string, data []byte) (t allocator.Tag, bucket uint64, err error) {
	var r tagRecord
	err = decodeWhole(data, &r)
	if r.Format > allocator.RecordFormat {
		return t, 0, fmt.Errorf("%w: %s: it has format %d, and this version reads format %d",
			allocator.ErrNewer, key, r.Format, allocator.RecordFormat)
	}
	if err != nil || r.Format < 1 || r.Name != key || r.Bucket == 0 || !r.sound() {
		return t, 0, damagedTag(key, data)
	}
	return r.Tag, r.Bucket, nil
}

// damagedTag is the error of a record that nobody can go by.
func damagedTag(key string, data []byte) error {
	return fmt.Errorf("%w: key %s of bucket %s: %.200q; write a record, with N above all IDs that were "+
		"handed out, "+
		"and B the config.first_seq that `nats stream info KV_%[3]s --json` shows: "+
		`nats kv put %[3]s %[2]s '{"format":1,"bucket":"B","tag":"%[2]s","end":"N","step":1000}'; `+
		`a strict tag has "step":0 and "order":"strict"`,
		allocator.ErrDamaged, key, wire.BucketTags, data)
}

// sound reports whether the numbers of a record fit each other.
func (r tagRecord) sound() bool {
	strict, domain := r.Order == allocator.Strict, r.Order.Domain()
	return r.MaxID >= 1 && r.Floor >= 0 && r.Floor <= r.MaxID && r.Order.Known() &&
		(strict && r.Step == 0 || !strict && r.Step >= 1 && r.Step <= allocator.LimitStep) &&
		(r.KeyID != "") == (domain != "") && r.EndsWithDomain() &&
		r.Quota.PerSecond >= 0 && r.Quota.Burst >= 0 && r.Outlast >= 0 && r.Limit >= 0 && r.Version >= 0
}

// errRemade: the record was written for a later bucket than the one that this generator knows.
var errRemade = fmt.Errorf("%w: bucket %s was made again", allocator.ErrUnavailable, wire.BucketTags)

// stored reads a record as the bucket of the tags has it. If the record names a later bucket, it
// looks whether there is one. If not, a hand wrote the record.
func (b bucket) stored(ctx context.Context, r Record) (allocator.Stored, error) {
	unread := allocator.Stored{Tag: allocator.Tag{Name: r.Key}, Revision: r.revision}
	t, of, err := decodeRecord(r.Key, r.Value)
	switch {
	case err != nil:
		return unread, err
	case of == b.first:
		return allocator.Stored{Tag: t, Revision: r.revision}, nil
	case of < b.first: // it was written for an earlier bucket
		return allocator.Stored{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	if now, err := find(ctx, b.Config, b.name); err != nil || now.first != b.first {
		return allocator.Stored{}, errors.Join(errRemade, err)
	}
	return unread, fmt.Errorf("%w: key %s of bucket %s names another bucket than %d, the config.first_seq of this one: "+
		"set it right with `nats kv put`", allocator.ErrDamaged, r.Key, b.name, b.first)
}
