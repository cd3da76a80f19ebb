package kvstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
)

const (
	// watchCheck is how often a watch looks whether it misses changes.
	watchCheck = 5 * time.Second
	// watchQuiet is how long drain waits for a value of a watch that is never closed.
	watchQuiet = time.Second
)

var errWatchEnded = errors.New("the watch on the bucket ended")

// Watch implements [allocator.Store] with a watch on the bucket. After a reconnect it
// starts a new watch, because the server may have forgotten the old one. It returns an
// error if the watch misses changes, as on a bucket that was deleted and restored.
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
	s.names.begin()
	defer s.names.end()
	check := time.NewTicker(s.watchCheck)
	defer check.Stop()
	var at progress
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
				continue // JetStream is unavailable; the next check looks again
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
				s.names.complete()
				if last, err := lastRevision(ctx, kv); err == nil {
					at.seen = max(at.seen, last) // it may be of a message that was purged
				}
				continue
			}
			at.seen = max(at.seen, entry.Revision())
			s.names.add(entry.Key())
			if entry.Operation() != jetstream.KeyValuePut {
				continue
			}
			t, err := decode(entry)
			if err != nil {
				s.cfg.log().Error("a tag's record is damaged", "error", err)
				continue
			}
			if old, ok := s.latest.Get(t.Name); t.Order == allocator.Strict && (!ok || old.revision < entry.Revision()) {
				at := entry.Created() // by the server's clock; after a pause of this process old records come
				if now := time.Now(); at.After(now) {
					at = now
				}
				s.latest.Put(t.Name, revised{t, entry.Revision(), true}, at) // the next claim need not read it
			}
			s.keys.preload(ctx, t)
			f(t)
		}
	}
}

// progress is how far a watch has come.
type progress struct {
	seen   uint64 // the last revision that came
	before uint64 // the bucket's last revision at the last check
	came   bool   // something came since that check
}

// blind reports whether the watch misses changes, given the bucket's last revision.
// Either the bucket was made again, and counts from 1. Or a revision of the check before
// has not come, nor anything else since; as long as values come, it may be behind them.
func (p *progress) blind(last uint64) bool {
	blind := last < p.seen || p.before > p.seen && !p.came
	p.before, p.came = last, false
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

// Floors implements [allocator.Store] with one reading of the bucket.
func (s *Store) Floors(ctx context.Context, f func(tag string, floor int64, rules allocator.Rules)) error {
	return s.Each(ctx, func(t allocator.Tag) {
		if t.Below() > 0 || t.Version > 0 {
			f(t.Name, t.Below(), t.Rules)
		}
	})
}

// Each calls f with the record of each tag, tombstones included. It skips damaged ones, which the watch logs.
func (s *Store) Each(ctx context.Context, f func(allocator.Tag)) error {
	kv, err := s.bucket()
	if err != nil {
		return err
	}
	err = eachRecord(ctx, s.cfg.JS, kv, func(entry jetstream.KeyValueEntry) {
		if t, err := decode(entry); err == nil {
			f(t)
		}
	})
	if err != nil {
		return fmt.Errorf("reading the records of the tags: %w", err)
	}
	return nil
}

// eachRecord calls f with the last entry of each key, which may mark a deletion. If eachEntry has missed
// one, it asks for the names of all keys, which takes as long again, and looks at those that are missing.
func eachRecord(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, f func(jetstream.KeyValueEntry)) error {
	read := make(map[string]bool)
	err := eachEntry(ctx, kv, func(record jetstream.KeyValueEntry) {
		read[record.Key()] = true
		f(record)
	})
	if err != nil {
		return err
	}
	return eachMissing(ctx, js, kv, read, func(key string) error {
		record, err := kv.Get(ctx, key)
		if err == nil {
			f(record)
		}
		return err
	})
}

// eachMissing calls f with each key of the bucket that is not among those that were read. f returns an error if it cannot read the record.
func eachMissing(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, read map[string]bool, f func(key string) error) error {
	info, err := streamInfo(ctx, kv)
	if err != nil || uint64(len(read)) >= info.State.NumSubjects {
		return err
	}
	missing, err := keys(ctx, js, kv.Bucket())
	if err != nil {
		return err
	}
	for key := range missing {
		if read[key] {
			continue
		}
		if err := f(key); err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return err
		}
	}
	return nil
}

// eachLatest calls f with the last entry of each key, which may mark a deletion, as the leader of the bucket has it. A replica that
// lags behind may feed the watch of eachEntry, so what the leader has beyond that comes from the leader. A record that is written twice
// meanwhile can still be missed, so it is looked for at the end. A key may come twice, the later entry second.
func eachLatest(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, f func(jetstream.KeyValueEntry)) error {
	read, found := uint64(0), make(map[string]bool)
	pass := func(record jetstream.KeyValueEntry) {
		read, found[record.Key()] = max(read, record.Revision()), true
		f(record)
	}
	err := eachEntry(ctx, kv, pass)
	if err != nil {
		return err
	}
	leader, err := leaderOf(ctx, js, kv.Bucket())
	if err != nil {
		return err
	}
	subject := subjectOf(kv.Bucket()) + ">"
	last, err := leader.GetLastMsgForSubject(ctx, subject)
	for err == nil && read < last.Sequence {
		var msg *jetstream.RawStreamMsg
		if msg, err = leader.GetMsg(ctx, read+1, jetstream.WithGetMsgSubject(subject)); err == nil {
			pass(leaderEntry{bucket: kv.Bucket(), msg: msg})
		}
	}
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) { // no record, or the last one was removed meanwhile
		return err
	}
	return eachMissing(ctx, js, kv, found, func(key string) error {
		msg, err := leader.GetLastMsgForSubject(ctx, subjectOf(kv.Bucket())+key)
		if err == nil {
			f(leaderEntry{bucket: kv.Bucket(), msg: msg})
		}
		return err
	})
}

// leaderEntry is a message of the stream under a bucket, as an entry of the bucket.
type leaderEntry struct {
	jetstream.KeyValueEntry
	bucket string
	msg    *jetstream.RawStreamMsg
}

func (e leaderEntry) Key() string      { return strings.TrimPrefix(e.msg.Subject, subjectOf(e.bucket)) }
func (e leaderEntry) Value() []byte    { return e.msg.Data }
func (e leaderEntry) Revision() uint64 { return e.msg.Sequence }

func (e leaderEntry) Operation() jetstream.KeyValueOp {
	if e.msg.Header.Get("KV-Operation") != "" {
		return jetstream.KeyValueDelete
	}
	return jetstream.KeyValuePut
}

// eachEntry calls f with the last entry of each key, which may mark a deletion. An
// entry that is written meanwhile can be missing: it leaves its old position before
// the reading comes there, and the reading ends before the new one.
func eachEntry(ctx context.Context, kv jetstream.KeyValue, f func(jetstream.KeyValueEntry)) error {
	watch, end, err := watchAll(ctx, kv)
	if err != nil {
		return err
	}
	defer end()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case entry, ok := <-watch.Updates():
			switch {
			case !ok:
				return errWatchEnded
			case entry == nil:
				return nil
			}
			f(entry)
		}
	}
}

// watchAll begins a watch on all keys of a bucket. Call end: it ends the watch and waits
// for its goroutine.
func watchAll(ctx context.Context, kv jetstream.KeyValue) (watch jetstream.KeyWatcher, end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	watch, err = kv.WatchAll(ctx)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return watch, func() {
		cancel() // Stop would wait for an answer of the server
		drain(watch)
	}, nil
}

// drain reads the values of a watch until it is closed: the goroutine of a watch with a full
// channel would never end. The library never closes a watch if its context ended at the
// moment in which it was made. Such a watch brings no values.
func drain(watch jetstream.KeyWatcher) {
	for {
		select {
		case _, ok := <-watch.Updates():
			if !ok {
				return
			}
		case <-time.After(watchQuiet):
			return
		}
	}
}
