package kvstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

// Pauses after a write that lost to another generator's: a random time up to
// firstConflictPause, which doubles up to lastConflictPause.
const (
	firstConflictPause = time.Millisecond
	lastConflictPause  = 50 * time.Millisecond
)

// Store keeps the tags in the bucket LEAF_TAGS, a key each, as the JSON of
// [allocator.Tag]. It implements [allocator.Store]; until [Store.Open] has
// returned without an error, its methods return [allocator.ErrUnavailable].
type Store struct {
	cfg        Config
	kv         atomic.Pointer[jetstream.KeyValue]
	watchCheck time.Duration

	installation atomic.Pointer[Installation] // that the tags belong to; nil: not known yet
	lost         atomic.Pointer[error]        // what is wrong with its record; nil: nothing
	hadTags      atomic.Bool                  // this process has created a tag
}

var _ allocator.Store = (*Store)(nil)

// New returns a store that is not open.
func New(cfg Config) *Store { return &Store{cfg: cfg, watchCheck: watchCheck} }

// Open opens the bucket, and creates it if it is missing. It may be called
// until it succeeds; an error that matches [allocator.ErrRefused] will stay.
func (s *Store) Open(ctx context.Context) error {
	kv, err := openBucket(ctx, s.cfg, bus.BucketTags, "Leafbus: the tags and their max_id")
	if err != nil {
		return err
	}
	s.kv.Store(&kv)
	return nil
}

func (s *Store) bucket() (jetstream.KeyValue, error) {
	kv := s.kv.Load()
	if kv == nil {
		return nil, fmt.Errorf("%w: bucket %s is not open yet", allocator.ErrUnavailable, bus.BucketTags)
	}
	return *kv, nil
}

// Reserve implements [allocator.Store] with one read and one compare-and-set.
func (s *Store) Reserve(ctx context.Context, tag string, n, from int64) (allocator.Grant, error) {
	var g allocator.Grant
	var moved *allocator.AdvancedError
	_, err := s.try(ctx, tag, func(t allocator.Tag, exists bool) (allocator.Tag, error) {
		if err := present(t, exists); err != nil {
			return t, err
		}
		if t.MaxID < from { // JetStream was restored; an old answer of a replica fails at the write
			moved = &allocator.AdvancedError{Tag: tag, Got: t.MaxID, Seen: from}
			t.MaxID = from
			return t, nil
		}
		left := math.MaxInt64 - t.MaxID
		if left < n {
			return t, fmt.Errorf("%w: the store has %d IDs of %s left", allocator.ErrExhausted, left, tag)
		}
		take := min(max(n, t.Step), left)
		g = allocator.Grant{Range: allocator.Range{First: t.MaxID, Last: t.MaxID + take - 1}, Step: t.Step}
		t.MaxID += take
		t.Updated = allocator.Now()
		return t, nil
	})
	if errors.Is(err, errRace) {
		return allocator.Grant{}, fmt.Errorf("%w: %w", allocator.ErrConflict, err)
	}
	if err != nil {
		return allocator.Grant{}, err
	}
	if moved != nil {
		return allocator.Grant{}, moved
	}
	return g, nil
}

// Get implements [allocator.Store].
func (s *Store) Get(ctx context.Context, tag string) (allocator.Tag, error) {
	kv, err := s.bucket()
	if err != nil {
		return allocator.Tag{}, err
	}
	t, _, exists, err := load(ctx, kv, tag)
	if err != nil {
		return allocator.Tag{}, err
	}
	if err := present(t, exists); err != nil {
		return allocator.Tag{}, err
	}
	return t, nil
}

// List implements [allocator.Store]. It asks the server for the names alone,
// then for the records of the page.
func (s *Store) List(ctx context.Context, q allocator.Query) ([]allocator.Tag, error) {
	kv, err := s.bucket()
	if err != nil {
		return nil, err
	}
	names, err := keys(ctx, s.cfg.JS, bus.BucketTags)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(names, func(name string, _ bool) bool { return !q.Match(name) })
	var tags []allocator.Tag
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if len(tags) == q.Limit {
			break
		}
		t, _, exists, err := load(ctx, kv, name)
		if err != nil {
			return nil, err
		}
		if exists && !t.Deleted {
			tags = append(tags, t)
		}
	}
	return tags, nil
}

// Create implements [allocator.Store]. It creates nothing if the installation's record is lost or
// cannot be read: see [Store.Err]. Nor does it create a tag at 1 after its key was deleted by hand,
// because nobody knows which IDs are in use.
func (s *Store) Create(ctx context.Context, tag allocator.Tag) (allocator.Tag, error) {
	if err := s.checkRecord(ctx); err != nil {
		// If the tags are lost, an operator or another generator may know a safe max_id.
		if known := errors.Is(err, errTagsLost) && tag.MaxID > 1; !known {
			return allocator.Tag{}, err
		}
	}
	tries := 0
	made, err := s.change(ctx, tag.Name, func(old allocator.Tag, exists bool) (allocator.Tag, error) {
		if exists && !old.Deleted {
			return old, fmt.Errorf("%w: %s", allocator.ErrExists, tag.Name)
		}
		if tries++; tries > 1 && !exists && s.deletedByHand(ctx, tag.Name) {
			return old, fmt.Errorf("%w: the key of %s (bucket %s) was deleted by hand, and with it how far the tag was: "+
				"add it with --max-id above all its IDs", allocator.ErrConflict, tag.Name, bus.BucketTags)
		}
		t := tag
		t.MaxID, t.Deleted = max(tag.MaxID, old.MaxID), false
		if t.Floor = t.MaxID; t.MaxID == 1 {
			t.Floor = 0
		}
		t.Updated = allocator.Now()
		return t, nil
	})
	if err == nil && !s.hadTags.Swap(true) {
		_ = s.checkRecord(ctx) // notes the first tag
	}
	return made, err
}

// deletedByHand reports whether the last entry of a key is the marker of a deletion.
func (s *Store) deletedByHand(ctx context.Context, key string) bool {
	stream, err := s.cfg.JS.Stream(ctx, streamOf(bus.BucketTags))
	if err != nil {
		return false
	}
	msg, err := stream.GetLastMsgForSubject(ctx, subjectOf(bus.BucketTags)+key)
	return err == nil && len(msg.Data) == 0
}

// Update implements [allocator.Store].
func (s *Store) Update(ctx context.Context, tag string, c allocator.Change) (allocator.Tag, error) {
	return s.change(ctx, tag, func(t allocator.Tag, exists bool) (allocator.Tag, error) {
		if err := present(t, exists); err != nil {
			return t, err
		}
		return t.With(c)
	})
}

// Delete implements [allocator.Store]: the record stays, as a tombstone.
func (s *Store) Delete(ctx context.Context, tag string, from int64) (allocator.Tag, error) {
	return s.change(ctx, tag, func(t allocator.Tag, exists bool) (allocator.Tag, error) {
		if err := present(t, exists); err != nil {
			return t, err
		}
		t.Deleted, t.MaxID = true, max(t.MaxID, from)
		t.Updated = allocator.Now()
		return t, nil
	})
}

// errUnanswered says that it is not known whether a write happened.
var errUnanswered = errors.New("it may have happened")

// errRace says that another generator changed the record first: nothing was
// written.
var errRace = errors.New("another generator changed the record first")

// change changes a tag's record, and begins again after each errRace. f may be
// called several times.
func (s *Store) change(ctx context.Context, tag string, f func(t allocator.Tag, exists bool) (allocator.Tag, error)) (allocator.Tag, error) {
	for pause := firstConflictPause; ; pause = min(2*pause, lastConflictPause) {
		t, err := s.try(ctx, tag, f)
		switch {
		case errors.Is(err, errUnanswered):
			return t, fmt.Errorf("%w: %w", allocator.ErrUncertain, err)
		case !errors.Is(err, errRace):
			return t, err
		}
		select {
		case <-ctx.Done():
			return allocator.Tag{}, fmt.Errorf("writing the record of %s: %w: %w", tag, err, ctx.Err())
		case <-time.After(rand.N(pause)):
		}
	}
}

// try reads a tag's record, lets f make the new one, and writes that unless the record
// has changed meanwhile. After an error of f, and after errRace, nothing has changed;
// after any other the write may have happened.
func (s *Store) try(ctx context.Context, tag string, f func(t allocator.Tag, exists bool) (allocator.Tag, error)) (allocator.Tag, error) {
	kv, err := s.bucket()
	if err != nil {
		return allocator.Tag{}, err
	}
	old, revision, exists, err := load(ctx, kv, tag)
	if err != nil {
		return allocator.Tag{}, err
	}
	t, err := f(old, exists)
	if err != nil {
		return allocator.Tag{}, err
	}
	record, err := json.Marshal(t)
	if err != nil {
		return allocator.Tag{}, err
	}
	if exists || t.MaxID == 1 {
		_, err = kv.Update(ctx, tag, record, revision) // 0: there must not even be the marker of a deletion
	} else {
		_, err = kv.Create(ctx, tag, record) // also if the key was deleted by hand
	}
	switch {
	case errors.Is(err, jetstream.ErrKeyRevisionMismatch), errors.Is(err, jetstream.ErrKeyExists):
		return allocator.Tag{}, errRace
	case err != nil:
		return allocator.Tag{}, fmt.Errorf("writing the record of %s (%w): %w", tag, errUnanswered, err)
	}
	return t, nil
}

// load reads a tag's record and the revision that the next write must find.
func load(ctx context.Context, kv jetstream.KeyValue, tag string) (t allocator.Tag, revision uint64, exists bool, err error) {
	entry, err := kv.Get(ctx, tag)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return allocator.Tag{}, 0, false, nil
	}
	if err != nil {
		return allocator.Tag{}, 0, false, fmt.Errorf("reading the record of %s: %w", tag, err)
	}
	t, err = decode(entry)
	return t, entry.Revision(), err == nil, err
}

// present is the error of a tag that does not exist or was deleted.
func present(t allocator.Tag, exists bool) error {
	switch {
	case !exists:
		return allocator.ErrUnknownTag
	case t.Deleted:
		return allocator.ErrDeleted
	}
	return nil
}

// decode reads a record. A record that this package cannot have written is an
// error: a guess could repeat IDs.
func decode(entry jetstream.KeyValueEntry) (allocator.Tag, error) {
	var t allocator.Tag
	if err := json.Unmarshal(entry.Value(), &t); err != nil {
		return t, fmt.Errorf("%w: %s: %w", allocator.ErrDamaged, entry.Key(), err)
	}
	if t.Name != entry.Key() || t.MaxID < 1 || t.Step < 1 {
		return t, fmt.Errorf("%w: %s: %s", allocator.ErrDamaged, entry.Key(), entry.Value())
	}
	return t, nil
}
