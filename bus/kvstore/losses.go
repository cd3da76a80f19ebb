package kvstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/wire"
)

const (
	// apart begins the keys that are no tags: no tag can have this character.
	apart = "~"
	// markerKey is the key of the marker.
	markerKey = apart + "bucket"

	// lookEach is how often a watch looks whether JetStream lost anything.
	lookEach = 5 * time.Second
	// lookTimeout bounds a look.
	lookTimeout = 2 * time.Second
	// creationLook is how old a look for losses may be before a tag is created, or counts as
	// unknown.
	creationLook = 100 * time.Millisecond
)

// marker is a record beside those of the tags. A bucket without it is new, or has lost its records:
// the settings of a stream survive the loss of the disks with its messages.
type marker struct {
	Installation string `json:"installation"`
	FirstSeq     uint64 `json:"first_seq,string"`
}

// whole reports whether the bucket of the tags has its marker. It refuses the bucket of another
// installation: its tags are not those of this one, and may be further back.
func (b bucket) whole(ctx context.Context, installation string) (bool, error) {
	r, err := b.get(ctx, markerKey)
	if err != nil {
		return false, err
	}
	var m marker
	if json.Unmarshal(r.Value, &m) != nil { // there is none, or it was written by hand
		return false, nil
	}
	if m.Installation != installation {
		return false, fmt.Errorf("%w: bucket %s is of installation %s, and not of installation %s: "+
			"name the right --server and account; if it was restored by mistake: stop all generators, "+
			"`nats stream rm %s`, `leaf restore`", allocator.ErrRefused, b.name, m.Installation, installation,
			streamOf(b.name))
	}
	return m.FirstSeq == b.first, nil
}

// mark makes the bucket of the tags the one of the installation. The marker comes first: where the
// note about the bucket is missing, the next attempt writes it. A note about another bucket shows
// that the tags were lost. It stays unless that ends.
func (b bucket) mark(ctx context.Context, installation string, end bool) error {
	whole, err := b.whole(ctx, installation)
	if err != nil {
		return err
	}
	if !whole {
		value, err := json.Marshal(marker{installation, b.first})
		if err == nil {
			_, err = b.send(ctx, markerKey, value)
		}
		if err != nil {
			return fmt.Errorf("marking bucket %s: %w", b.name, err)
		}
	}
	_, err = ChangeInstallation(ctx, b.Config, func(have *Installation) error {
		if end || have.Tags == 0 {
			have.Tags = b.first
		}
		return nil
	})
	return err
}

// FirstOfTags is [Installation.Tags] for a record of the installation that is made again. If the
// bucket of its tags is not there either, the tags count as lost. It refuses the bucket of another
// installation.
func FirstOfTags(ctx context.Context, cfg Config, installation string) (uint64, error) {
	_, first, err := findTags(ctx, cfg, installation)
	return first, err
}

// findTags looks up the bucket of the tags, and returns what the installation's record should say
// about it.
func findTags(ctx context.Context, cfg Config, installation string) (b bucket, first uint64, err error) {
	const lost = 1 // no bucket has it
	b, err = find(ctx, cfg, wire.BucketTags)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return b, lost, nil
	}
	whole := false
	if err == nil {
		whole, err = b.whole(ctx, installation)
	}
	if err == nil && !whole {
		return b, lost, nil
	}
	return b, b.first, err
}

// endLoss says that all tags that were lost are there again, as far as anybody knows them: from now
// on names without a record are new. It makes the bucket if it is missing. first is that of the
// bucket in which they are; 0: whichever there is.
func endLoss(ctx context.Context, cfg Config, first uint64) error {
	have, ok, err := ReadInstallation(ctx, cfg)
	if err == nil && !ok {
		err = fmt.Errorf("%w: this NATS account has no installation", allocator.ErrRefused)
	}
	var b bucket
	if err == nil {
		b, err = open(ctx, cfg, wire.BucketTags)
	}
	if err == nil && first != 0 && b.first != first {
		err = fmt.Errorf("%w: the tags were lost again meanwhile", allocator.ErrTagsLost)
	}
	if err != nil {
		return err
	}
	return b.mark(ctx, have.ID, true)
}

// look is what a look for losses found.
type look struct {
	lost error
	at   time.Time // when it began
}

// Err implements [allocator.Records].
func (r *Records) Err() error {
	if last := r.looked.Load(); last != nil {
		return last.lost
	}
	return errNotOpen
}

// lookedLately reports whether a look found nothing wrong within creationLook.
func (r *Records) lookedLately() bool {
	last := r.looked.Load()
	return last != nil && last.lost == nil && time.Since(last.at) <= creationLook
}

// keepLooking keeps what JetStream lost for Err.
func (r *Records) keepLooking(ctx context.Context) {
	tick := time.NewTicker(lookEach)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-r.lookNow:
		}
		b := r.bucket.Load()
		if b == nil {
			continue
		}
		looking, cancel := context.WithTimeout(ctx, lookTimeout)
		_, _ = r.look(looking) // after an error what was known before stays
		if r.Unwritable() != nil {
			_ = r.probe(looking, *b)
		}
		cancel()
	}
}

// look finds whether JetStream lost the installation's record or the tags, and keeps that for Err.
// err: it is not known.
func (r *Records) look(ctx context.Context) (lost, err error) {
	at := time.Now()
	if lost, err = r.losses(ctx); err != nil {
		return nil, fmt.Errorf("%w: whether JetStream lost anything is not known: %w", allocator.ErrUnavailable, err)
	}
	was := r.looked.Swap(&look{lost, at})
	switch known := was != nil && was.lost != nil; {
	case lost == nil && known:
		r.cfg.log().Info("the installation's state is there again")
	case lost != nil && !known:
		record, _ := json.Marshal(r.own.Load()) // for the operator, who can write it again
		r.cfg.log().Error("the installation's state is lost", "error", lost, "record", string(record))
	}
	return lost, nil
}

// losses returns what JetStream lost. Each read is answered by the leader.
func (r *Records) losses(ctx context.Context) (lost, err error) {
	own := r.own.Load()
	have, ok, err := ReadInstallation(ctx, r.cfg)
	switch {
	case errors.Is(err, errOldLeader): // it may lead the tags, too
		return err, nil
	case errors.Is(err, allocator.ErrRefused): // somebody changed this bucket, and claims do not need it
		if _, tags := find(ctx, r.cfg, wire.BucketTags); errors.Is(tags, allocator.ErrRefused) {
			return tags, nil
		}
		return fmt.Errorf("%w: %v", allocator.ErrUnavailable, err), nil
	case err != nil:
		return nil, err
	case !ok:
		return fmt.Errorf("%w: JetStream lost the record of installation %s (bucket %s, key %s): "+
			"see docs/operate.md for what to do; no tag is created meanwhile",
			allocator.ErrUnavailable, own.ID, wire.BucketInstallation, InstallationKey), nil
	case have.ID != own.ID:
		return fmt.Errorf("%w: this generator is of installation %s, and JetStream now has the record of "+
			"installation %s: see docs/operate.md for what to do; no tag is created meanwhile",
			allocator.ErrUnavailable, own.ID, have.ID), nil
	}
	r.own.Store(&have) // with what was noted since
	b, first, err := findTags(ctx, r.cfg, have.ID)
	switch old := r.bucket.Load(); {
	case errors.Is(err, allocator.ErrRefused): // somebody changed the bucket
		return err, nil
	case err != nil:
		return nil, err
	case b.leader != nil && old != nil && old.first != b.first:
		r.bucket.Store(&b)
		r.wake()
	}
	if first == b.first && first == have.Tags { // the record, too, may say that they are lost
		return nil, nil
	}
	return fmt.Errorf("%w: those of installation %s (bucket %s is not the one that had them, or is empty): "+
		"`leaf restore` a backup; without one, `leaf tag advance --all`", allocator.ErrTagsLost, own.ID,
		wire.BucketTags), nil
}
