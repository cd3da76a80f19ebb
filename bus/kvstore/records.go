package kvstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/wire"
)

const (
	// beats is how many keys generators write to only to learn how far the bucket is. They are a fixed set, because
	// nothing can be deleted.
	beats = 64
	// recordHead is by how many bytes the header and the subject of a record may be longer than those of a beat.
	recordHead = 256
	// loadTimeout bounds a read. It can be repeated safely, and its answer may be lost with the connection.
	loadTimeout = 2 * time.Second
	// creationLook is how old a look for losses may be before a tag is created, or counts as unknown.
	creationLook = 100 * time.Millisecond
)

// Records keeps the record of each tag in the bucket LEAF_TAGS. It implements [allocator.Records]. Until [Records.Open]
// has returned without an error, its methods return [allocator.ErrUnavailable], and Watch waits. Its methods are safe
// for concurrent use.
type Records struct {
	cfg  Config
	beat string // the subject of its own key among the beats

	// Owned by Open and by each session of Watch.
	bucket atomic.Pointer[tagsBucket] // nil: not open

	// Owned by look.
	own     atomic.Pointer[Installation] // that the tags belong to; nil: not open
	lost    atomic.Pointer[error]        // for Err
	looked  atomic.Int64                 // when the last look that found nothing wrong began, in Unix ns
	lookNow chan struct{}                // holds one if somebody should look

	// Owned by Swap and Load.
	failures atomic.Uint64         // writes that failed
	failure  atomic.Pointer[error] // of the last of them
	refused  atomic.Int64          // bytes of the last write for which JetStream had no room; 0: it has room
	overcome atomic.Uint64         // as many had failed when a write was last sent that succeeded

	// Owned by Watch and Sync, and guarded by mu.
	mu     sync.Mutex
	begun  int           // sessions
	synced int           // the last session that was synced
	news   chan struct{} // closed and replaced when synced grows
	again  chan struct{} // holds one if a new session is wanted
}

var _ allocator.Records = (*Records)(nil)

// NewRecords returns records that are not open.
func NewRecords(cfg Config) *Records {
	r := &Records{cfg: cfg, news: make(chan struct{}), again: make(chan struct{}, 1), lookNow: make(chan struct{}, 1)}
	r.beat = subjectOf(wire.BucketTags) + apart + "beat." + strconv.Itoa(rand.N(beats))
	r.lost.Store(&errNotOpen)
	return r
}

var errNotOpen = fmt.Errorf("%w: bucket %s is not open yet: `leaf nodes` says why",
	allocator.ErrUnavailable, wire.BucketTags)

// Open opens the bucket of this installation, which it creates if it is missing and the installation's record is there.
// It may be called until it succeeds; an error that matches [allocator.ErrRefused] will stay. It also succeeds where
// tags were lost: see [Records.Err].
func (r *Records) Open(ctx context.Context, own Installation) error {
	r.own.Store(&own)
	have, ok, err := ReadInstallation(ctx, r.cfg)
	if err != nil {
		return err
	}
	ours, open := ok && have.ID == own.ID, findTags
	if ours {
		open = openRecords
	}
	b, err := open(ctx, r.cfg)
	if err != nil {
		return err
	}
	if ours && have.Tags == 0 { // no tag is created before it is noted
		if err := b.mark(ctx, r.cfg, own.ID, false); err != nil {
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

// EndLoss is [EndLoss] that [Records.Err] shows at once.
func (r *Records) EndLoss(ctx context.Context) error {
	err := EndLoss(ctx, r.cfg)
	if err == nil {
		_, err = r.look(ctx)
	}
	return err
}

func (r *Records) opened() (tagsBucket, error) {
	if b := r.bucket.Load(); b != nil {
		return *b, nil
	}
	return tagsBucket{}, errNotOpen
}

// Load implements [allocator.Records].
func (r *Records) Load(ctx context.Context, tag string) (allocator.Stored, error) {
	b, err := r.opened()
	if err != nil {
		return allocator.Stored{}, err
	}
	if r.Unwritable() != nil {
		if err := r.probe(ctx); err != nil {
			return allocator.Stored{}, fmt.Errorf("%w: bucket %s cannot be written: %w",
				allocator.ErrUnavailable, wire.BucketTags, err)
		}
	}
	s, revision, err := r.load(ctx, b, tag)
	if !errors.Is(err, errRemade) && (err != nil || s.Revision != 0 || r.Err() != nil || r.lookedLately()) {
		return s, err
	}
	if _, err := r.look(ctx); err != nil { // another bucket may be in the place of the one that had the record
		return s, err
	}
	if now := r.bucket.Load(); now.first != b.first {
		s, revision, err = r.load(ctx, *now, tag)
		b = *now
	}
	if errors.Is(err, errRemade) {
		return b.misnamed(tag, revision)
	}
	return s, err
}

// load is Load for a bucket. revision is that of what is there, also of a record that counts as none.
func (r *Records) load(ctx context.Context, b tagsBucket, tag string) (s allocator.Stored, revision uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	msg, err := b.leader.GetLastMsgForSubject(ctx, subjectOf(wire.BucketTags)+tag)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return s, 0, nil
	}
	if err != nil {
		return s, 0, fmt.Errorf("%w: reading the record of %s: %w", allocator.ErrUnavailable, tag, err)
	}
	s, err = storedTag(b, tag, msg.Data, msg.Sequence)
	if s.Revision != 0 {
		b.saw(s.Revision)
	}
	return s, msg.Sequence, err
}

// errRemade: the record was written for a later bucket than the one that this generator knows.
var errRemade = fmt.Errorf("%w: bucket %s was made again", allocator.ErrUnavailable, wire.BucketTags)

// misnamed is what there is of a record that names a later bucket, where the bucket was looked at since: a hand wrote
// it.
func (b tagsBucket) misnamed(tag string, revision uint64) (allocator.Stored, error) {
	b.saw(revision)
	return allocator.Stored{Tag: allocator.Tag{Name: tag}, Revision: revision}, fmt.Errorf("%w: key %s of bucket %s "+
		"names another bucket than %d, the config.first_seq of this one: set it right with `nats kv put`",
		allocator.ErrDamaged, tag, wire.BucketTags, b.first)
}

// Swap implements [allocator.Records]. It creates nothing while the installation's record is lost, or cannot be read,
// or if it finds that the tags were lost before [Records.Err] has said so.
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
		if b, err = findTags(ctx, r.cfg); err != nil { // it may be made again at this moment
			return 0, fmt.Errorf("%w: nothing was written: %w", allocator.ErrUnavailable, err)
		}
	}
	// Another generator pushed the revision: it may be of a bucket that was made again, or restored.
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
	subject := subjectOf(wire.BucketTags) + t.Name
	made, err := r.write(ctx, subject, data, jetstream.WithExpectLastSequencePerSubject(revision))
	if revision == 0 && errors.Is(err, allocator.ErrConflict) {
		s, is, loadErr := r.load(ctx, b, t.Name)
		if loadErr == nil && s.Revision == 0 && is != 0 {
			_, loadErr = r.look(ctx) // else the record may be a good one of another bucket
		}
		if loadErr == nil && s.Revision == 0 && is != 0 && r.bucket.Load().first == b.first {
			made, err = r.write(ctx, subject, data, jetstream.WithExpectLastSequencePerSubject(is))
		}
	}
	if err == nil && revision == 0 { // it may have landed in a bucket that was made again, where it does not count
		if now, findErr := findTags(ctx, r.cfg); findErr != nil || now.first != b.first {
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

// write sends a message once, and returns its sequence. The errors are those of Swap.
func (r *Records) write(
	ctx context.Context, subject string, data []byte, options ...jetstream.PublishOpt,
) (uint64, error) {
	failures := r.failures.Load()
	conn := r.cfg.JS.Conn()
	unsent := conn.IsClosed() || ctx.Err() != nil
	ack, err := r.cfg.JS.Publish(ctx, r.cfg.writeTo(subject), data, append(options, jetstream.WithRetryAttempts(0))...)
	switch {
	case err == nil && int64(len(data)) < r.refused.Load(): // a record still does not fit
		return ack.Sequence, nil
	case err == nil:
		r.refused.Store(0)
		for was := r.overcome.Load(); was < failures && !r.overcome.CompareAndSwap(was, failures); {
			was = r.overcome.Load()
		}
		return ack.Sequence, nil
	case mismatch(err):
		return 0, fmt.Errorf("%w: another generator changed it first", allocator.ErrConflict)
	}
	if full(err) {
		r.refused.Store(max(r.refused.Load(), int64(len(data))))
	}
	r.failure.Store(&err)
	r.failures.Add(1)
	if unsent || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrConnectionDraining) ||
		errors.Is(err, nats.ErrReconnectBufExceeded) { // a generator's connection has no buffer for reconnects
		return 0, fmt.Errorf("%w: nothing was written: %w", allocator.ErrUnavailable, err)
	}
	return 0, failedWrite(err)
}

// probe finds whether records can be written again. If JetStream had no room for a record, it writes at least as many
// bytes: a write without a body may fit into a bucket that is full for all records.
func (r *Records) probe(ctx context.Context) error {
	var body []byte
	if n := r.refused.Load(); n > 0 {
		body = make([]byte, n+recordHead)
	}
	_, err := r.write(ctx, r.beat, body)
	return err
}

// Unwritable says why records cannot be written; nil: as far as is known, they can. It does not block.
func (r *Records) Unwritable() error {
	if r.failures.Load() == r.overcome.Load() {
		return nil
	}
	err := *r.failure.Load()
	if full(err) {
		return fmt.Errorf("%w: JetStream is full, so bucket %s cannot be written: raise the limit of the bucket, the "+
			"account or the server, or make room on its disk: %w", allocator.ErrUnavailable, wire.BucketTags, err)
	}
	return fmt.Errorf("%w: bucket %s cannot be written: %w", allocator.ErrUnavailable, wire.BucketTags, err)
}

// Err implements [allocator.Records].
func (r *Records) Err() error {
	if err := r.lost.Load(); err != nil {
		return *err
	}
	return nil
}

// look finds whether JetStream lost the installation's record or the tags, and keeps that for Err. err: it is not
// known.
func (r *Records) look(ctx context.Context) (lost, err error) {
	at := time.Now()
	if lost, err = r.losses(ctx); err != nil {
		return nil, fmt.Errorf("%w: whether JetStream lost anything is not known: %w", allocator.ErrUnavailable, err)
	}
	if lost == nil {
		r.looked.Store(at.UnixNano())
		if was := r.lost.Swap(nil); was != nil && *was != errNotOpen {
			r.cfg.log().Info("the installation's state is there again")
		}
	} else if was := r.lost.Swap(&lost); was == nil || *was == errNotOpen {
		record, _ := json.Marshal(r.own.Load()) // for the operator, who can write it again
		r.cfg.log().Error("the installation's state is lost", "error", lost, "record", string(record))
	}
	return lost, nil
}

// lookedLately reports whether a look found nothing wrong within creationLook. The clock may have been set back since.
func (r *Records) lookedLately() bool {
	ago := time.Since(time.Unix(0, r.looked.Load()))
	return ago >= 0 && ago <= creationLook
}

// losses returns what JetStream lost. Each read is answered by the leader.
func (r *Records) losses(ctx context.Context) (lost, err error) {
	own := r.own.Load()
	have, ok, err := ReadInstallation(ctx, r.cfg)
	switch {
	case errors.Is(err, errOldLeader): // it may lead the tags, too
		return err, nil
	case errors.Is(err, allocator.ErrRefused): // somebody changed this bucket, and claims do not need it
		if _, tags := findTags(ctx, r.cfg); errors.Is(tags, allocator.ErrRefused) {
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
			"installation %s: "+
			"see docs/operate.md for what to do; no tag is created meanwhile",
			allocator.ErrUnavailable, own.ID, have.ID), nil
	}
	r.own.Store(&have) // with what was noted since
	b, err := findTags(ctx, r.cfg)
	var m *marker
	if err == nil {
		if old := r.bucket.Load(); old != nil && old.first != b.first {
			r.bucket.Store(&b)
			r.wake()
		}
		m, err = b.marker(ctx)
	}
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
	case errors.Is(err, allocator.ErrRefused): // somebody changed the bucket
		return err, nil
	case err != nil:
		return nil, err
	case m.check(have.ID) != nil:
		return m.check(have.ID), nil
	case m != nil && *m == marker{have.ID, have.Tags}: // and it is in no other bucket
		if m.FirstSeq == b.first {
			return nil, nil
		}
	}
	return fmt.Errorf("%w: those of installation %s (bucket %s is not the one that had them, or is empty): "+
		"`leaf restore` a backup; without one, `leaf tag advance --all`", allocator.ErrTagsLost, own.ID,
		wire.BucketTags), nil
}
