package kvstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/wire"
)

const (
	// tagsDescription names the format of the bucket.
	tagsDescription = "Leafbus: the records of the tags, format 2"
	// apart begins the keys that are no tags: no tag can have this character.
	apart = "~"
	// mostWrites are more than a bucket ever has.
	mostWrites = 1 << 40
	// markerKey is the key of the marker.
	markerKey = apart + "bucket"
)

// marker is a record beside those of the tags. A bucket without it is new, or has lost its records: the settings of a
// stream survive the loss of the disks with its messages.
type marker struct {
	Installation string `json:"installation"`
	FirstSeq     uint64 `json:"first_seq,string"`
}

// tagsBucket is the bucket of the tags as it was when it was looked up.
type tagsBucket struct {
	leader jetstream.Stream // for reads that only the leader answers
	first  uint64           // the first sequence, which no other bucket of tags has
	seen   *atomic.Uint64   // the highest revision of a record that is known to be in it
}

// saw notes the revision of a record that is in the bucket.
func (b tagsBucket) saw(revision uint64) {
	for was := b.seen.Load(); was < revision && !b.seen.CompareAndSwap(was, revision); {
		was = b.seen.Load()
	}
}

// findTags looks the bucket of the tags up. An error that matches [allocator.ErrRefused] says that it is not as
// generators make it.
func findTags(ctx context.Context, cfg Config) (tagsBucket, error) {
	stream, err := streamUnder(ctx, cfg.JS, wire.BucketTags)
	if err != nil {
		return tagsBucket{}, unreached(wire.BucketTags, err)
	}
	info := stream.CachedInfo()
	b := tagsBucket{stream, info.Config.FirstSeq, new(atomic.Uint64)}
	if info.State.FirstSeq < b.first { // nats-server 2.15.2 once took over the files of an earlier stream
		return b, fmt.Errorf("%w: bucket %s has records from before it was made: remove it with `nats stream rm %s`, "+
			"and restore a backup with `leaf restore`", allocator.ErrRefused, wire.BucketTags, info.Config.Name)
	}
	return b, fitTags(info.Config)
}

// openRecords is findTags that makes the bucket if it is missing.
func openRecords(ctx context.Context, cfg Config) (tagsBucket, error) {
	b, err := findTags(ctx, cfg)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return b, err
	}
	have, _, err := ReadInstallation(ctx, cfg)
	if err != nil {
		return b, err
	}
	err = makeStream(ctx, cfg, wire.BucketTags, tagsBytes, func(replicas int, maxBytes int64) error {
		wanted := tagsStream
		wanted.Replicas, wanted.MaxBytes = replicas, maxBytes
		// Its revisions are above those of an earlier bucket, so a late write that names one of those fails. The clock
		// may be behind that of the generator that made the earlier one.
		wanted.FirstSeq = max(uint64(time.Now().UnixMicro()), have.Tags+mostWrites)
		_, err := cfg.JS.CreateStream(ctx, wanted)
		return err
	})
	if err != nil {
		return b, err
	}
	return findTags(ctx, cfg)
}

// tagsStream is how the stream under the bucket is made.
var tagsStream = jetstream.StreamConfig{
	Name:              streamOf(wire.BucketTags),
	Description:       tagsDescription,
	Subjects:          []string{subjectOf(wire.BucketTags) + ">"},
	Storage:           jetstream.FileStorage,
	MaxMsgsPerSubject: 1,
	Discard:           jetstream.DiscardNew,
	DenyDelete:        true,
	DenyPurge:         true,
	// Without AllowDirect only the leader answers a read.
}

// fitTags returns an error that matches [allocator.ErrRefused] if the bucket is not as generators make it, apart from
// its replicas and size.
func fitTags(c jetstream.StreamConfig) error {
	what := flaw(c)
	switch {
	case c.Description != tagsDescription:
		return fmt.Errorf("%w: bucket %s is of another version of Leafbus, or of another program (its description "+
			"is %q): "+
			"use that version; or, if none of its IDs is in use, remove the bucket with `nats stream rm %s`",
			allocator.ErrRefused, wire.BucketTags, c.Description, c.Name)
	case what != "":
	case c.FirstSeq == 0:
		what = "no first sequence of its own"
	case c.MaxMsgsPerSubject != 1 || c.Discard != jetstream.DiscardNew || c.DiscardNewPerSubject:
		what = "other limits than one message a subject with discard new"
	case !c.DenyDelete || !c.DenyPurge || c.AllowRollup:
		what = "the permission to delete, purge or roll up messages"
	case c.AllowDirect || c.MirrorDirect:
		what = "direct reads, which a server that is behind may answer"
	case !slices.Equal(c.Subjects, tagsStream.Subjects), c.Mirror != nil, len(c.Sources) > 0, c.SubjectTransform != nil,
		c.Sealed, c.NoAck:
		what = "other subjects or sources, or takes no writes"
	}
	if what == "" {
		return nil
	}
	return fmt.Errorf("%w: bucket %s has %s, so IDs could repeat; if `nats stream edit %s` cannot change that: "+
		"`leaf backup`, stop all generators, `nats stream rm %[4]s`, `leaf restore`", allocator.ErrRefused,
		wire.BucketTags, what, c.Name)
}

// marker returns what the bucket says of itself; nil: nothing.
func (b tagsBucket) marker(ctx context.Context) (*marker, error) {
	msg, err := b.leader.GetLastMsgForSubject(ctx, subjectOf(wire.BucketTags)+markerKey)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", wire.BucketTags, err)
	}
	var m marker
	if json.Unmarshal(msg.Data, &m) != nil { // written by hand
		return nil, nil
	}
	return &m, nil
}

// check refuses the bucket of another installation: its tags are not those of this one, and may be further back.
func (m *marker) check(installation string) error {
	if m != nil && m.Installation != installation {
		return fmt.Errorf("%w: bucket %s is of installation %s, and not of installation %s: "+
			"name the right --server and account; if it was restored by mistake: stop all generators, "+
			"`nats stream rm %s`, `leaf restore`", allocator.ErrRefused, wire.BucketTags, m.Installation, installation,
			streamOf(wire.BucketTags))
	}
	return nil
}

// checkTags refuses a bucket of the tags that is of another installation, or not as generators make it.
func checkTags(ctx context.Context, cfg Config, installation string) error {
	b, err := findTags(ctx, cfg)
	var m *marker
	if err == nil {
		m, err = b.marker(ctx)
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return errors.Join(err, m.check(installation))
}

// mark makes the bucket the one of the installation. The marker comes first: where the note about the bucket is
// missing, the next attempt writes it. A note about another bucket shows that the tags were lost. It stays unless that
// ends.
func (b tagsBucket) mark(ctx context.Context, cfg Config, installation string, end bool) error {
	m, err := b.marker(ctx)
	if err != nil {
		return err
	}
	if err := m.check(installation); err != nil {
		return err
	}
	if m == nil || m.FirstSeq != b.first {
		data, err := json.Marshal(marker{installation, b.first})
		if err == nil {
			_, err = cfg.JS.Publish(ctx, cfg.writeTo(subjectOf(wire.BucketTags)+markerKey), data)
		}
		if err != nil {
			return fmt.Errorf("marking bucket %s: %w", wire.BucketTags, err)
		}
	}
	_, err = ChangeInstallation(ctx, cfg, func(have *Installation) error {
		if end || have.Tags == 0 {
			have.Tags = b.first
		}
		return nil
	})
	return err
}

// FirstOfTags is [Installation.Tags] for a record of the installation that is made again. If the bucket of its tags is
// not there either, the tags count as lost.
func FirstOfTags(ctx context.Context, cfg Config, installation string) (uint64, error) {
	const lost = 1 // no bucket has it
	b, err := findTags(ctx, cfg)
	var m *marker
	if err == nil {
		m, err = b.marker(ctx)
	}
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return lost, nil
	case err != nil:
		return 0, err
	case m == nil || *m != marker{installation, b.first}:
		return lost, m.check(installation)
	}
	return b.first, nil
}

// EndLoss says that all tags that were lost are there again, as far as anybody knows them: from now on names without a
// record are new. It makes the bucket if it is missing.
func EndLoss(ctx context.Context, cfg Config) error { return endLoss(ctx, cfg, 0) }

// endLoss is EndLoss for the bucket with this first sequence; 0: whichever there is.
func endLoss(ctx context.Context, cfg Config, first uint64) error {
	have, ok, err := ReadInstallation(ctx, cfg)
	if err == nil && !ok {
		err = fmt.Errorf("%w: this NATS account has no installation", allocator.ErrRefused)
	}
	var b tagsBucket
	if err == nil {
		b, err = openRecords(ctx, cfg)
	}
	if err == nil && first != 0 && b.first != first {
		err = fmt.Errorf("%w: the tags were lost again meanwhile", allocator.ErrTagsLost)
	}
	if err != nil {
		return err
	}
	return b.mark(ctx, cfg, have.ID, true)
}
