package kvstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

// Pauses between attempts of which another generator was ahead: a random time
// up to this, doubled to the last.
const (
	firstConflictPause = time.Millisecond
	lastConflictPause  = 50 * time.Millisecond
)

// watchCheck is how often a watch looks whether it misses changes.
const watchCheck = 5 * time.Second

// Store keeps the tags in the bucket LEAF_TAGS, a key each, as the JSON of
// [allocator.Tag]. It implements [allocator.Store]; until [Store.Open] has
// returned without an error, its methods return [allocator.ErrUnavailable].
type Store struct {
	cfg        Config
	kv         atomic.Pointer[jetstream.KeyValue]
	watchCheck time.Duration

	installation atomic.Pointer[Installation] // that the tags belong to; nil: not known yet
	lost         atomic.Pointer[error]        // what is wrong with its record; nil: nothing
	hadTags      atomic.Bool                  // this process has created one
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
func (s *Store) Reserve(ctx context.Context, tag string, n int64) (allocator.Grant, error) {
	var g allocator.Grant
	_, err := s.try(ctx, tag, func(t allocator.Tag, exists bool) (allocator.Tag, error) {
		if err := present(t, exists); err != nil {
			return t, err
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
	names = slices.DeleteFunc(names, func(name string) bool { return !q.Match(name) })
	slices.Sort(names)
	var tags []allocator.Tag
	for _, name := range names {
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

// Create implements [allocator.Store]. Without the installation's record it
// creates nothing: see [Store.Err].
func (s *Store) Create(ctx context.Context, tag allocator.Tag) (allocator.Tag, error) {
	if err := s.checkRecord(ctx); err != nil {
		// Where the tags are lost, an operator or another generator may know how far one was.
		if known := errors.Is(err, errTagsLost) && tag.MaxID > 1; !known {
			return allocator.Tag{}, err
		}
	}
	made, err := s.change(ctx, tag.Name, func(old allocator.Tag, exists bool) (allocator.Tag, error) {
		if exists && !old.Deleted {
			return old, fmt.Errorf("%w: %s", allocator.ErrExists, tag.Name)
		}
		t := tag
		t.MaxID, t.Floor, t.Deleted = max(tag.MaxID, old.MaxID), old.MaxID, false
		t.Updated = allocator.Now()
		return t, nil
	})
	if err == nil && !s.hadTags.Swap(true) {
		_ = s.checkRecord(ctx) // notes the first tag
	}
	return made, err
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
func (s *Store) Delete(ctx context.Context, tag string) (allocator.Tag, error) {
	return s.change(ctx, tag, func(t allocator.Tag, exists bool) (allocator.Tag, error) {
		if err := present(t, exists); err != nil {
			return t, err
		}
		t.Deleted = true
		t.Updated = allocator.Now()
		return t, nil
	})
}

// Floors implements [allocator.Store] with one pass over the bucket.
func (s *Store) Floors(ctx context.Context, f func(tag string, floor int64)) error {
	kv, err := s.bucket()
	if err != nil {
		return err
	}
	w, err := kv.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return fmt.Errorf("reading the records of the tags: %w", err)
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("reading the records of the tags: %w", ctx.Err())
		case entry, ok := <-w.Updates():
			if !ok {
				return errors.New("reading the records of the tags: the watch on the bucket ended")
			}
			if entry == nil {
				return nil // that was all
			}
			t, err := decode(entry)
			if err != nil {
				continue // the watch reports damaged records
			}
			if floor := t.Below(); floor > 0 {
				f(t.Name, floor)
			}
		}
	}
}

// Watch implements [allocator.Store] with a watch on the bucket. It begins anew
// when the connection was away, as the server may have forgotten it, and breaks
// when it turns out to be blind, as on a bucket that was deleted and restored.
func (s *Store) Watch(ctx context.Context, f func(allocator.Tag)) error {
	kv, err := s.bucket()
	if err != nil {
		return err
	}
	connected := s.cfg.Conn.StatusChanged(nats.CONNECTED)
	defer s.cfg.Conn.RemoveStatusListener(connected)
	w, end, err := watchAll(ctx, kv)
	if err != nil {
		return err
	}
	defer func() { end() }()
	check := time.NewTicker(s.watchCheck)
	defer check.Stop()
	var at sight
	var missed bool // the installation's record, at the last check
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-connected:
			again, endAgain, err := watchAll(ctx, kv)
			if err != nil {
				return err
			}
			end()
			w, end, at.before = again, endAgain, 0 // all values come again
		case <-check.C:
			s.lookAtRecord(ctx, &missed)
			last, err := lastRevision(ctx, kv)
			if err != nil {
				continue // away; it will be told or be looked at again
			}
			at.came = at.came || len(w.Updates()) > 0
			if at.blind(last) {
				return errors.New("the bucket has changes that the watch did not see")
			}
		case entry, ok := <-w.Updates():
			if !ok {
				return errWatchEnded
			}
			at.came = true
			if entry == nil { // the end of the values that were there at first
				if last, err := lastRevision(ctx, kv); err == nil {
					at.seen = max(at.seen, last) // it may be of a message that was purged
				}
				continue
			}
			at.seen = max(at.seen, entry.Revision())
			if entry.Operation() != jetstream.KeyValuePut {
				continue
			}
			t, err := decode(entry)
			if err != nil {
				s.cfg.log().Error("a tag's record is damaged", "error", err)
				continue
			}
			f(t)
		}
	}
}

// sight is how far a watch sees.
type sight struct {
	seen   uint64 // the last revision that came
	before uint64 // the bucket's last revision at the last check
	came   bool   // something came since that check
}

// blind reports, given the bucket's last revision, whether the bucket was made
// anew, or had a revision at the check before this one that has not come, nor
// anything else, since. While values come, it may be on its way behind them.
func (s *sight) blind(last uint64) bool {
	blind := last < s.seen || s.before > s.seen && !s.came
	s.before, s.came = last, false
	return blind
}

// lastRevision is the revision of the last change of the bucket.
func lastRevision(ctx context.Context, kv jetstream.KeyValue) (uint64, error) {
	info, err := streamInfo(ctx, kv)
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq, nil
}

// errUnanswered says that it is not known whether a write happened.
var errUnanswered = errors.New("it may have happened")

// errRace says that another generator changed the record first: nothing was
// written.
var errRace = errors.New("another generator was ahead")

// change makes a change of a tag's record, and begins again as often as others
// are ahead. f may be called several times.
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

// try reads a tag's record, lets f make the new one, and writes that if nobody
// was ahead. An error of f, and errRace, change nothing; after any other the
// write may have happened.
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
	if exists {
		_, err = kv.Update(ctx, tag, record, revision)
	} else {
		_, err = kv.Create(ctx, tag, record) // also where somebody deleted the key by hand
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

// present is the error of a tag that does not exist, or no longer.
func present(t allocator.Tag, exists bool) error {
	switch {
	case !exists:
		return allocator.ErrUnknownTag
	case t.Deleted:
		return allocator.ErrDeleted
	}
	return nil
}

// decode reads a record. One that cannot be what this package wrote is an
// error: to guess could repeat IDs.
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
