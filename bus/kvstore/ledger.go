package kvstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

const (
	// ledgerKey comes before the tag in a key of the ledger.
	ledgerKey = "tag."
	// seededKey is the key of the record that comes after those of all tags; see [LedgerBucket.Seeded].
	seededKey = "seeded"
)

// Ledger is the ledger of the tags that are in a database. It implements [allocator.Ledger]. Until
// [Ledger.Use] was called its methods return [allocator.ErrUnavailable].
type Ledger struct {
	state  atomic.Pointer[ledgerState]
	doubts chan struct{} // holds one if somebody should look at the bucket
}

// ledgerState is replaced as a whole.
type ledgerState struct {
	bucket *LedgerBucket // nil: it must not be used
	err    error         // why the ledger is unavailable; nil: it is available, as far as the last call shows
	failed bool          // the last write failed: a success of a read means nothing, because a full disk refuses writes alone
}

var errNotSeeded = fmt.Errorf("%w: the ledger (bucket %s) is not ready yet", allocator.ErrUnavailable, bus.BucketLedger)

// NewLedger returns a ledger that must not be used yet.
func NewLedger() *Ledger {
	l := &Ledger{doubts: make(chan struct{}, 1)}
	l.Suspend(errNotSeeded)
	return l
}

// Use lets claims be made in this bucket from now on.
func (l *Ledger) Use(b *LedgerBucket) { l.state.Store(&ledgerState{bucket: b}) }

// Failed reports whether the last write failed. Until [Ledger.Use] was called again, nothing can be read then.
func (l *Ledger) Failed() bool { return l.state.Load().failed }

// Suspend stops all claims, for this reason.
func (l *Ledger) Suspend(why error) { l.state.Store(&ledgerState{err: why}) }

// Missed notes that the ledger cannot be reached now.
func (l *Ledger) Missed(why error) {
	s := l.state.Load()
	l.state.CompareAndSwap(s, &ledgerState{s.bucket, why, s.failed}) // a call that ends meanwhile knows more
}

// Err says why the ledger is unavailable; nil: it is available, as far as the last call shows.
func (l *Ledger) Err() error { return l.state.Load().err }

// Doubts holds one signal when the bucket may have been lost or replaced.
func (l *Ledger) Doubts() <-chan struct{} { return l.doubts }

// used returns the bucket, or why it must not be used.
func (l *Ledger) used() (*LedgerBucket, error) {
	switch s := l.state.Load(); {
	case s.bucket != nil && !s.failed:
		return s.bucket, nil
	case !errors.Is(s.err, allocator.ErrUnavailable):
		return nil, fmt.Errorf("%w: the ledger: %w", allocator.ErrUnavailable, s.err)
	default:
		return nil, s.err
	}
}

// note keeps what a call of the bucket shows for [Ledger.Err], and returns its error.
func (l *Ledger) note(b *LedgerBucket, err error, write bool) error {
	s := l.state.Load()
	switch {
	case s.bucket != b: // suspended meanwhile
	case err == nil && s.err != nil && (write || !s.failed):
		l.state.CompareAndSwap(s, &ledgerState{bucket: b})
	case errors.Is(err, allocator.ErrUnavailable):
		l.state.CompareAndSwap(s, &ledgerState{b, err, s.failed || write})
		select {
		case l.doubts <- struct{}{}:
		default:
		}
	}
	return err
}

// Read implements [allocator.Ledger].
func (l *Ledger) Read(ctx context.Context, tag string) (allocator.Entry, error) {
	b, err := l.used()
	if err != nil {
		return allocator.Entry{}, err
	}
	e, err := b.Read(ctx, tag)
	return e, l.note(b, err, false)
}

// Write implements [allocator.Ledger].
func (l *Ledger) Write(ctx context.Context, tag string, e allocator.Entry) (revision uint64, err error) {
	b, err := l.used()
	if err != nil {
		return 0, err
	}
	if e.Revision == 0 {
		if err := l.seeded(ctx, b); err != nil {
			return 0, err
		}
	}
	revision, err = b.Write(ctx, tag, e)
	return revision, l.note(b, err, true)
}

// Claimed is [Ledger.Read] for evidence. A missing record is an error in a bucket that has lost its records: it does not
// show that nothing was claimed.
func (l *Ledger) Claimed(ctx context.Context, tag string) (allocator.Entry, error) {
	e, err := l.Read(ctx, tag)
	if err != nil || e.Revision != 0 {
		return e, err
	}
	b, err := l.used()
	if err == nil {
		err = l.seeded(ctx, b)
	}
	return e, err
}

// seeded is an error if the bucket does not have the records of all tags. A tag without a record was never claimed, or
// the bucket has lost its records.
func (l *Ledger) seeded(ctx context.Context, b *LedgerBucket) error {
	seeded, err := b.Seeded(ctx)
	if err == nil && !seeded {
		err = errNotSeeded
	}
	return l.note(b, err, false)
}

// Each implements [allocator.Ledger].
func (l *Ledger) Each(ctx context.Context, f func(tag string, e allocator.Entry)) error {
	b, err := l.used()
	if err != nil {
		return err
	}
	return l.note(b, b.Each(ctx, f), false)
}

// LedgerBucket is the bucket LEAF_LEDGER. It implements [allocator.Ledger] for the one that seeds it;
// all others go through [Ledger].
type LedgerBucket struct {
	Created time.Time // a bucket that replaces it has a later one

	js     jetstream.JetStream
	kv     jetstream.KeyValue
	stream jetstream.Stream
	log    func(msg string, args ...any)
}

// OpenLedger opens the bucket of the ledger, and creates it if it is missing. An error that matches
// [allocator.ErrRefused] says that the bucket could lose records by itself.
func OpenLedger(ctx context.Context, cfg Config) (*LedgerBucket, error) {
	kv, err := openStream(ctx, cfg, bus.BucketLedger, tagsBytes, func(replicas int, maxBytes int64) error {
		_, err := cfg.JS.CreateStream(ctx, jetstream.StreamConfig{
			Name:              streamOf(bus.BucketLedger),
			Description:       "Leafbus: how far each tag was claimed",
			Subjects:          []string{subjectOf(bus.BucketLedger) + ">"},
			Storage:           jetstream.FileStorage,
			Replicas:          replicas,
			MaxBytes:          maxBytes,
			MaxMsgsPerSubject: 1,
			Discard:           jetstream.DiscardNew,
			DenyDelete:        true,
			DenyPurge:         true,
			// Without AllowDirect only the leader answers a read. So while there is no leader, nothing is reserved.
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	stream, err := cfg.JS.Stream(ctx, streamOf(bus.BucketLedger))
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", bus.BucketLedger, err)
	}
	if c := stream.CachedInfo().Config; !c.DenyPurge || !c.DenyDelete || c.AllowDirect { // somebody made it by hand
		c.DenyPurge, c.DenyDelete, c.AllowRollup, c.AllowDirect = true, true, false, false
		if stream, err = cfg.JS.UpdateStream(ctx, c); err != nil {
			return nil, fmt.Errorf("bucket %s lets its records be purged or deleted, and cannot be changed: %w", bus.BucketLedger, err)
		}
	}
	return &LedgerBucket{Created: stream.CachedInfo().Created, js: cfg.JS, kv: kv, stream: stream, log: cfg.log().Error}, nil
}

// Seeded reports whether the bucket is the one that it was when it was opened, and has a record of each tag
// that was known when it was filled. The creation of the stream alone does not show that: a cluster keeps it when
// the disk with the only replica is replaced.
func (b *LedgerBucket) Seeded(ctx context.Context) (bool, error) {
	msg, err := b.stream.GetLastMsgForSubject(ctx, subjectOf(bus.BucketLedger)+seededKey)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	if err != nil {
		return false, unavailable("", err)
	}
	return string(msg.Data) == b.seeded(), nil
}

// SetSeeded notes that the bucket has a record of each tag.
func (b *LedgerBucket) SetSeeded(ctx context.Context) error {
	if _, err := b.kv.PutString(ctx, seededKey, b.seeded()); err != nil {
		return unavailable("", err)
	}
	return nil
}

// seeded is the text of the record at seededKey.
func (b *LedgerBucket) seeded() string { return b.Created.UTC().Format(time.RFC3339Nano) }

// Read implements [allocator.Ledger].
func (b *LedgerBucket) Read(ctx context.Context, tag string) (allocator.Entry, error) {
	msg, err := b.stream.GetLastMsgForSubject(ctx, subjectOf(bus.BucketLedger)+ledgerKey+tag)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return allocator.Entry{}, nil
	}
	if err != nil {
		return allocator.Entry{}, unavailable(tag, err)
	}
	return decodeEntry(tag, msg.Data, msg.Sequence)
}

// Write implements [allocator.Ledger]. It never uses kv.Create, which would write over the marker of a
// deletion.
func (b *LedgerBucket) Write(ctx context.Context, tag string, e allocator.Entry) (revision uint64, err error) {
	data, err := json.Marshal(claimRecord{e.End, e.Floor, e.Order, e.Last, e.Rules})
	if err != nil {
		return 0, err
	}
	revision, err = b.kv.Update(ctx, ledgerKey+tag, data, e.Revision)
	switch {
	case errors.Is(err, jetstream.ErrKeyRevisionMismatch), errors.Is(err, jetstream.ErrKeyExists):
		return 0, fmt.Errorf("%w: another generator changed the ledger's record of %s first", allocator.ErrConflict, tag)
	case err != nil:
		return 0, unavailable(tag, failedWrite(err))
	}
	return revision, nil
}

// Each implements [allocator.Ledger]. It skips damaged records, and logs them.
func (b *LedgerBucket) Each(ctx context.Context, f func(tag string, e allocator.Entry)) error {
	err := eachRecord(ctx, b.js, b.kv, func(record jetstream.KeyValueEntry) {
		tag, ok := strings.CutPrefix(record.Key(), ledgerKey)
		if !ok {
			return
		}
		e, err := decodeEntry(tag, record.Value(), record.Revision())
		if err != nil {
			b.log("a record of the ledger is damaged", "tag", tag, "error", err)
			return
		}
		f(tag, e)
	})
	if err != nil {
		return unavailable("", err)
	}
	return nil
}

// unavailable is the error of a ledger that does not do its work.
func unavailable(tag string, err error) error {
	about := ""
	if tag != "" {
		about = " of " + tag
	}
	return fmt.Errorf("%w: the ledger%s (bucket %s): %w", allocator.ErrUnavailable, about, bus.BucketLedger, err)
}

// claimRecord is the JSON of a record.
type claimRecord struct {
	End   int64 `json:"end,string"`
	Floor int64 `json:"floor,string,omitempty"`
	// Order is that of the tag in the marker of a strict or opaque tag. Older versions take that as damage, and so claim nothing.
	Order allocator.Order `json:"order,omitempty"`
	// Last is evidence alone, so nothing about it makes a record damaged.
	Last allocator.Claim `json:"last,omitzero"`
	allocator.Rules
}

// decodeEntry reads a record. One that this package cannot have written is an error: a guess could
// repeat IDs. The marker of a deletion has no data.
func decodeEntry(tag string, data []byte, revision uint64) (allocator.Entry, error) {
	var e claimRecord
	err := decodeWhole(data, &e)
	flaw := ""
	switch {
	case len(data) == 0:
		flaw = "was deleted"
	case err != nil: // its text is about Go's types
		flaw = fmt.Sprintf("cannot be read: %.100q", data)
	case !e.Order.Known():
		flaw = fmt.Sprintf("has the order %.40q", e.Order)
	case e.End < 1 || e.Floor < 0 || e.Floor > e.End:
		flaw = fmt.Sprintf("has end %d and floor %d, but an end is at least 1, and a floor is from 0 to the end", e.End, e.Floor)
	}
	if flaw != "" {
		return allocator.Entry{}, fmt.Errorf("%w: the ledger's record of %s %s; write a new one: nats kv put %s %s%s '{\"end\":\"N\"}', "+
			"with N above all IDs that were handed out, and at least the max_id that `leaf tag list` shows; "+
			"or write '{\"end\":\"1\",\"order\":\"strict\"}' if the tag is strict, or with \"opaque-\" and its domain in the place of strict if it is opaque",
			allocator.ErrDamaged, tag, flaw, bus.BucketLedger, ledgerKey, tag)
	}
	return allocator.Entry{End: e.End, Floor: e.Floor, Order: e.Order, Last: e.Last, Rules: e.Rules, Revision: revision}, nil
}
