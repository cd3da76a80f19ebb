package kvstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/wire"
)

const (
	// beats is how many keys generators write to only to learn how far the bucket is. They are a
	// fixed set, because nothing can be deleted.
	beats = 64
	// recordHead is by how many bytes the header and the subject of a record may be longer than
	// those of a beat.
	recordHead = 256
	// loadTimeout bounds a read. It can be repeated safely, and its answer may be lost with the
	// connection.
	loadTimeout = 2 * time.Second
)

// Records keeps the record of each tag in the bucket LEAF_TAGS. It implements [allocator.Records].
// Until [Records.Open] has returned without an error, its methods return
// [allocator.ErrUnavailable], and Watch waits. Its methods are safe for concurrent use.
type Records struct {
	cfg  Config
	beat string // its own key among the beats

	// Owned by Open and by each session of Watch.
	bucket atomic.Pointer[bucket] // nil: not open

	// Owned by look.
	own     atomic.Pointer[Installation] // that the tags belong to; nil: not open
	looked  atomic.Pointer[look]         // the last one that found out; nil: not open
	lookNow chan struct{}                // holds one if somebody should look

	failed atomic.Pointer[failure] // owned by write; nil: as far as is known, records can be written

	// Owned by Watch and Sync, and guarded by mu.
	mu     sync.Mutex
	begun  int           // sessions
	synced int           // the last session that was synced
	news   chan struct{} // closed and replaced when synced grows
	again  chan struct{} // holds one if a new session is wanted
}

// failure is why the last write failed.
type failure struct {
	err   error
	bytes int // of the longest write for which JetStream had no room; 0: it has room
}

var _ allocator.Records = (*Records)(nil)

// NewRecords returns records that are not open.
func NewRecords(cfg Config) *Records {
	r := &Records{cfg: cfg, news: make(chan struct{}), again: make(chan struct{}, 1), lookNow: make(chan struct{}, 1)}
	r.beat = apart + "beat." + strconv.Itoa(rand.N(beats))
	return r
}

var errNotOpen = fmt.Errorf("%w: bucket %s is not open yet: `leaf nodes` says why",
	allocator.ErrUnavailable, wire.BucketTags)

// Open opens the bucket of this installation, which it creates if it is missing and the
// installation's record is there. It may be called until it succeeds; an error that matches
// [allocator.ErrRefused] will stay. It also succeeds where tags were lost: see [Records.Err].
func (r *Records) Open(ctx context.Context, own Installation) error {
	r.own.Store(&own)
	have, ok, err := ReadInstallation(ctx, r.cfg)
	if err != nil {
		return err
	}
	ours, how := ok && have.ID == own.ID, find
	if ours {
		how = open
	}
	b, err := how(ctx, r.cfg, wire.BucketTags)
	if err != nil {
		return err
	}
	if ours && have.Tags == 0 { // no tag is created before it is noted
		if err := b.mark(ctx, own.ID, false); err != nil {
			return err
		}
	}
	r.bucket.Store(&b)
	lost, err := r.look(ctx)
	if err != nil {
		return err
	}
	r.wake()
	if errors.Is(lost, allocator.ErrRefused) {
		return lost
	}
	return nil
}

// wake begins a session now.
func (r *Records) wake() {
	select {
	case r.again <- struct{}{}:
	default:
	}
}

// EndLoss says that all tags that were lost are there again, as far as anybody knows them.
// [Records.Err] shows it at once.
func (r *Records) EndLoss(ctx context.Context) error {
	err := endLoss(ctx, r.cfg, 0)
	if err == nil {
		_, err = r.look(ctx)
	}
	return err
}

func (r *Records) opened() (bucket, error) {
	if b := r.bucket.Load(); b != nil {
		return *b, nil
	}
	return bucket{}, errNotOpen
}

// Load implements [allocator.Records].
func (r *Records) Load(ctx context.Context, tag string) (allocator.Stored, error) {
	b, err := r.opened()
	if err != nil {
		return allocator.Stored{}, err
	}
	if r.Unwritable() != nil {
		if err := r.probe(ctx, b); err != nil {
			return allocator.Stored{}, fmt.Errorf("%w: bucket %s cannot be written: %w",
				allocator.ErrUnavailable, wire.BucketTags, err)
		}
	}
	s, _, err := r.load(ctx, b, tag)
	if !errors.Is(err, errRemade) && (err != nil || s.Revision != 0 || r.Err() != nil || r.lookedLately()) {
		return s, err
	}
	if _, err := r.look(ctx); err != nil { // another bucket may be in the place of the one that had the record
		return s, err
	}
	if now := r.bucket.Load(); now.first != b.first {
		s, _, err = r.load(ctx, *now, tag)
	}
	return s, err
}

// load is Load for a bucket. revision is that of what is there, also of a record that counts as
// none.
func (r *Records) load(ctx context.Context, b bucket, tag string) (s allocator.Stored, revision uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	is, err := b.get(ctx, tag)
	if err != nil {
		return s, 0, fmt.Errorf("%w: %w", allocator.ErrUnavailable, err)
	}
	if is.revision == 0 {
		return s, 0, nil
	}
	s, err = b.stored(ctx, is)
	return s, is.revision, err
}

// Swap implements [allocator.Records]. It creates nothing while the installation's record is lost,
// or cannot be read, or if it finds that the tags were lost before [Records.Err] has said so.
func (r *Records) Swap(ctx context.Context, t allocator.Tag, revision uint64) (uint64, error) {
	b, err := r.opened()
	if err != nil {
		return 0, err
	}
	if err := r.Err(); errors.Is(err, allocator.ErrRefused) { // somebody changed the bucket
		return 0, fmt.Errorf("%w: %w", allocator.ErrUnavailable, err)
	}
	if revision == 0 && !r.lookedLately() {
		known := errors.Is(r.Err(), allocator.ErrTagsLost)
		if lost, err := r.look(ctx); err != nil || lost != nil && !(known && errors.Is(lost, allocator.ErrTagsLost)) {
			return 0, errors.Join(err, lost)
		}
		if b, err = find(ctx, r.cfg, wire.BucketTags); err != nil { // it may be made again at this moment
			return 0, fmt.Errorf("%w: nothing was written: %w", allocator.ErrUnavailable, err)
		}
	}
	// Another generator pushed the revision: it may be of a bucket that was made again, or
	// restored.
	if revision != 0 && revision < b.first || revision > b.seen.Load() {
		switch s, _, err := r.load(ctx, b, t.Name); {
		case errors.Is(err, errRemade):
			_, _ = r.look(ctx)
			return 0, fmt.Errorf("%w: %w", allocator.ErrConflict, err)
		case err != nil && s.Revision == 0:
			return 0, err
		case s.Revision != revision:
			return 0, fmt.Errorf("%w: another generator changed it first", allocator.ErrConflict)
		}
	}
	data, err := encodeTag(t, b.first)
	if err != nil {
		return 0, err
	}
	made, err := r.write(ctx, b, t.Name, data, jetstream.WithExpectLastSequencePerSubject(revision))
	if revision == 0 && errors.Is(err, allocator.ErrConflict) {
		s, is, loadErr := r.load(ctx, b, t.Name)
		if loadErr == nil && s.Revision == 0 && is != 0 {
			_, loadErr = r.look(ctx) // else the record may be a good one of another bucket
		}
		if loadErr == nil && s.Revision == 0 && is != 0 && r.bucket.Load().first == b.first {
			made, err = r.write(ctx, b, t.Name, data, jetstream.WithExpectLastSequencePerSubject(is))
		}
	}
	if err == nil && revision == 0 { // it may have landed in a bucket that was made again, where it does not count
		if now, findErr := find(ctx, r.cfg, wire.BucketTags); findErr != nil || now.first != b.first {
			err = fmt.Errorf("%w: bucket %s was made again, or cannot be looked up: %v", allocator.ErrUncertain,
				wire.BucketTags, cmp.Or(findErr, errRemade))
		}
	}
	if err != nil {
		return made, fmt.Errorf("writing the record of %s: %w", t.Name, err)
	}
	b.saw(made)
	return made, nil
}

// write is [bucket.send] that notes whether records can be written.
func (r *Records) write(
	ctx context.Context, b bucket, key string, value []byte, options ...jetstream.PublishOpt,
) (uint64, error) {
	was := r.failed.Load()
	made, err := b.send(ctx, key, value, options...)
	switch {
	case errors.Is(err, allocator.ErrConflict):
	case err != nil:
		f := failure{err: err}
		if last := r.failed.Load(); last != nil {
			f.bytes = last.bytes
		}
		if full(err) {
			f.bytes = max(f.bytes, len(value))
		}
		r.failed.Store(&f)
	case was != nil && len(value) >= was.bytes: // a shorter one may have room where a record has none
		r.failed.CompareAndSwap(was, nil)
	}
	return made, err
}

// probe finds whether records can be written again. If JetStream had no room for a record, it
// writes at least as many bytes: a write without a body may fit into a bucket that is full for all
// records.
func (r *Records) probe(ctx context.Context, b bucket) error {
	var body []byte
	if f := r.failed.Load(); f != nil && f.bytes > 0 {
		body = make([]byte, f.bytes+recordHead)
	}
	_, err := r.write(ctx, b, r.beat, body)
	return err
}

// Unwritable says why records cannot be written; nil: as far as is known, they can. It does not
// block.
func (r *Records) Unwritable() error {
	f := r.failed.Load()
	if f == nil {
		return nil
	}
	return fmt.Errorf("%w: bucket %s cannot be written: %w", allocator.ErrUnavailable, wire.BucketTags, f.err)
}
