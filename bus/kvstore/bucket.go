package kvstore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/wire"
)

// Config says where the buckets are and how they are made.
type Config struct {
	JS jetstream.JetStream
	// Replicas of the buckets that are created: 1 to 5, or 0 for 3 where the
	// cluster has them, else 1.
	Replicas int
	Log      *slog.Logger // default: slog.Default
}

func (c Config) log() *slog.Logger { return cmp.Or(c.Log, slog.Default()) }

// ErrNoJetStream says that no server answers for JetStream. That may pass: the servers with
// JetStream may be away.
var ErrNoJetStream = errors.New("no JetStream answers on this NATS")

// buckets are all that there are, in the order of a backup. The tags come before the master key of
// opaque tags, which is written before the first of them.
var buckets = []string{wire.BucketInstallation, wire.BucketTags, wire.BucketWorkers, wire.BucketKeys}

// descriptions of the buckets. That of the tags names their format: another one is refused.
var descriptions = map[string]string{
	wire.BucketInstallation: "Leafbus: the installation's record",
	wire.BucketTags:         "Leafbus: the records of the tags, format 2",
	wire.BucketWorkers:      "Leafbus: who holds which worker ID, and until when",
	wire.BucketKeys:         "Leafbus: the master key of opaque tags. Whoever can read it can reveal IDs",
}

const (
	// mostWrites are more than a bucket ever has.
	mostWrites = 1 << 40
	// mostConflictPause is the longest pause of a change after a conflict. For some seconds, a
	// leader that is cut off may answer reads with the record from before.
	mostConflictPause = 50 * time.Millisecond
)

// streamOf is the name of the stream under a bucket.
func streamOf(bucket string) string { return "KV_" + bucket }

// subjectOf is what comes before the key in the subject of a bucket's record.
func subjectOf(bucket string) string { return "$KV." + bucket + "." }

// streamFor is how the stream under a bucket is made, apart from its replicas, size and first
// sequence.
func streamFor(name string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              streamOf(name),
		Description:       descriptions[name],
		Subjects:          []string{subjectOf(name) + ">"},
		Storage:           jetstream.FileStorage,
		MaxMsgsPerSubject: 1,
		Discard:           jetstream.DiscardNew,
		// Nobody may write over a master key, not even by hand.
		DiscardNewPerSubject: name == wire.BucketKeys,
		DenyDelete:           true,
		DenyPurge:            true,
		// Without AllowDirect only the leader answers a read.
	}
}

// bucket is a bucket as its leader described it when it was looked up.
type bucket struct {
	Config
	name   string
	leader jetstream.Stream // for reads that only the leader answers
	first  uint64           // the first sequence, which no other bucket of this name has
	seen   *atomic.Uint64   // the highest revision of a record that is known to be in it
}

// saw notes the revision of a record that is in the bucket.
func (b bucket) saw(revision uint64) {
	for was := b.seen.Load(); was < revision && !b.seen.CompareAndSwap(was, revision); {
		was = b.seen.Load()
	}
}

// find looks a bucket up. An error that matches [allocator.ErrRefused] says that it is not as
// generators make it; then the bucket can still be read, unless its leader is too old.
func find(ctx context.Context, cfg Config, name string) (bucket, error) {
	stream, err := cfg.JS.Stream(ctx, streamOf(name))
	if err != nil {
		return bucket{}, unreached(name, err)
	}
	info := stream.CachedInfo()
	if err := checkLeader(info); err != nil {
		return bucket{}, err
	}
	config := info.Config
	info.Config.AllowDirect = false // for this handle, not in the stream: another replica may lag behind by many seconds
	b := bucket{cfg, name, stream, config.FirstSeq, new(atomic.Uint64)}
	if info.State.FirstSeq < b.first { // nats-server 2.15.2 once took over the files of an earlier stream
		return b, fmt.Errorf("%w: bucket %s has records from before it was made: remove it with `nats stream rm %s`, "+
			"and restore a backup with `leaf restore`", allocator.ErrRefused, name, config.Name)
	}
	return b, Fit(name, config)
}

// open is find that makes the bucket if it is missing.
func open(ctx context.Context, cfg Config, name string) (bucket, error) {
	b, err := find(ctx, cfg, name)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return b, err
	}
	if err := makeBucket(ctx, cfg, name); err != nil {
		return b, err
	}
	return find(ctx, cfg, name)
}

func makeBucket(ctx context.Context, cfg Config, name string) error {
	if err := CheckOldStore(ctx, cfg, time.Time{}); err != nil {
		return err
	}
	have, _, err := ReadInstallation(ctx, cfg)
	if err != nil {
		return err
	}
	wanted := streamFor(name)
	// Its revisions are above those of an earlier bucket, so a late write that names one of those
	// fails. The clock may be behind that of the generator that made the earlier one.
	wanted.FirstSeq = max(uint64(time.Now().UnixMicro()), have.Tags+mostWrites)
	err = replicate(ctx, cfg, func(replicas int) error {
		wanted.Replicas = replicas
		_, err := cfg.JS.CreateStream(ctx, wanted)
		if code(err) == codeNotCreated {
			// A server that still removes the files of a deleted stream refuses the new one 2 times
			// in 1,000.
			_, err = cfg.JS.CreateStream(ctx, wanted)
		}
		if code(err) != codeNeedsSize {
			return err
		}
		return shrink(sizeOf(name), func(maxBytes int64) error {
			sized := wanted
			sized.MaxBytes = maxBytes
			_, err := cfg.JS.CreateStream(ctx, sized)
			if err == nil {
				cfg.log().Info("the account demands that streams have a size: `leaf doctor` warns before the bucket is full",
					"bucket", name, "bytes", maxBytes)
			}
			return err
		})
	})
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another generator was first
		return unreached(name, err)
	}
	return nil
}

// unreached is the error of a bucket that cannot be looked up.
func unreached(name string, err error) error {
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return fmt.Errorf("%w: %w", ErrNoJetStream, err)
	}
	return fmt.Errorf("bucket %s: %w", name, err)
}

// Record is the last message of a key. One with an empty value is the marker of a deletion by hand.
type Record struct {
	Bucket string `json:"bucket"`
	Key    string `json:"key"`
	Value  []byte `json:"value"`

	revision uint64 // 0: there is no message
}

// get reads the record of a key from the leader.
func (b bucket) get(ctx context.Context, key string) (Record, error) {
	msg, err := b.leader.GetLastMsgForSubject(ctx, subjectOf(b.name)+key)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return Record{Bucket: b.name, Key: key}, nil
	}
	if err != nil {
		return Record{}, fmt.Errorf("bucket %s, key %s: %w", b.name, key, err)
	}
	b.saw(msg.Sequence)
	return Record{b.name, key, append([]byte{}, msg.Data...), msg.Sequence}, nil
}

// put writes a record by compare-and-set on the revision that was read, and returns the new one. An
// error matches [allocator.ErrConflict] if the key has another revision, [allocator.ErrUnavailable]
// if nothing was written, and [allocator.ErrUncertain] if the write may have happened.
func (b bucket) put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return b.send(ctx, key, value, jetstream.WithExpectLastSequencePerSubject(revision))
}

// change changes a record by compare-and-set, again when another generator was first. next returns
// the new value. Where that is nil, or what is there, nothing is written.
func (b bucket) change(ctx context.Context, key string, next func(is Record) ([]byte, error)) error {
	for {
		is, err := b.get(ctx, key)
		if err != nil {
			return err
		}
		value, err := next(is)
		if err != nil || value == nil || is.revision != 0 && bytes.Equal(value, is.Value) {
			return err
		}
		_, err = b.put(ctx, key, value, is.revision)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, allocator.ErrConflict):
			return fmt.Errorf("bucket %s, key %s: %w", b.name, key, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rand.N(mostConflictPause)):
		}
	}
}

// send sends a message once: a second one would find the own write, and take it for a conflict. It
// returns the message's sequence. The errors are those of put.
func (b bucket) send(
	ctx context.Context, key string, value []byte, options ...jetstream.PublishOpt,
) (sequence uint64, err error) {
	subject := subjectOf(b.name) + key
	if domain := b.JS.Options().Domain; domain != "" { // a leaf node of NATS passes on nothing to $KV.>
		subject = "$JS." + domain + ".API." + subject
	}
	unsent := b.JS.Conn().IsClosed() || ctx.Err() != nil
	ack, err := b.JS.Publish(ctx, subject, value, append(options, jetstream.WithRetryAttempts(0))...)
	switch {
	case err == nil:
		return ack.Sequence, nil
	case mismatch(err):
		return 0, fmt.Errorf("%w: another generator changed it first", allocator.ErrConflict)
	case full(err): // JetStream looks at its limits before it stores anything
		return 0, fmt.Errorf("%w: nothing was written, because JetStream is full: raise the limit of the bucket, the "+
			"account or the server: %w", allocator.ErrUnavailable, err)
	case unsent, errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrConnectionDraining),
		errors.Is(err, nats.ErrReconnectBufExceeded): // a generator's connection has no buffer for reconnects
		return 0, fmt.Errorf("%w: nothing was written: %w", allocator.ErrUnavailable, err)
	}
	return 0, fmt.Errorf("%w: %w", allocator.ErrUncertain, err)
}

// decodeWhole reads the JSON of a record that has only known fields, and nothing behind it.
func decodeWhole(data []byte, record any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(record); err != nil {
		return err
	}
	if _, more := decoder.Token(); more != io.EOF {
		return errors.New("more follows the record")
	}
	return nil
}
