package kvstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/bus"
)

// maxLostLogged is how many tags without a key the watch logs. If the bucket is lost, all of them lack it.
const maxLostLogged = 20

// keyTimeout bounds the reading of a key. It can be repeated safely.
const keyTimeout = time.Second

// opaqueKeys are the permutations of opaque tags. Their keys are in the bucket LEAF_KEYS, which is made with the first opaque tag.
//
// A key is written once, and outlives its tag: the stream refuses later versions, deletions and purges. The tag's record has the ID of
// its key. So a tag without a key, or with another one, is refused: two keys would make the same ID of two numbers. A key that was read
// stays in memory. It is the right one for life, so a generator that has it goes on if the bucket is lost. If the tag's record then names
// another key, records and keys were lost together and the name was created again: this generator refuses the tag while that lasts.
type opaqueKeys struct {
	cfg Config
	any atomic.Bool // there is one in memory; most installations have no opaque tags

	mu     sync.RWMutex
	of     map[string]*opaque.Permutation // by tag
	wrong  map[string]error               // by tag: its record, as it was read last, does not go with of
	missed time.Time                      // when a key could not be read for the last time
	lost   atomic.Int64                   // keys that the watch found to be lost
}

// known returns the permutation of a tag, if it is opaque and its key is in memory; else nil. With an error it must make no IDs.
func (k *opaqueKeys) known(tag string) (*opaque.Permutation, error) {
	if !k.any.Load() {
		return nil, nil
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.of[tag], k.wrong[tag]
}

// check compares a tag's record with the permutation in memory, which it returns; nil: there is none.
func (k *opaqueKeys) check(t allocator.Tag) (p *opaque.Permutation, wrong error) {
	p, was := k.known(t.Name)
	if p != nil && (p.KeyID() != t.KeyID || p.Domain() != t.Order.Domain()) {
		wrong = fmt.Errorf("%w: the record of %s (bucket %s) does not name the key with which this generator made its IDs: "+
			"restore %[3]s and %[4]s from a backup", allocator.ErrDamaged, t.Name, bus.BucketTags, bus.BucketKeys)
	}
	if (was == nil) != (wrong == nil) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if wrong == nil {
			delete(k.wrong, t.Name)
		} else {
			k.wrong[t.Name] = wrong
		}
	}
	return p, wrong
}

// keyRecord is the JSON of a key.
type keyRecord struct {
	Domain opaque.Domain `json:"domain"`
	Key    []byte        `json:"key"`
}

// load returns the permutation of a tag by its record; nil: it is not opaque. An error that matches [allocator.ErrDamaged] says that the
// key is lost, or is another one.
func (k *opaqueKeys) load(ctx context.Context, t allocator.Tag) (*opaque.Permutation, error) {
	if p, err := k.check(t); err != nil {
		return nil, err
	} else if p != nil || t.Order.Domain() == "" {
		return p, nil
	}
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	r, err := k.read(ctx, t.Name)
	switch {
	case errors.Is(err, errNoKey):
		return nil, fmt.Errorf("%w: the key of %s is lost (bucket %s), and a new key would repeat IDs: restore the bucket from a backup",
			allocator.ErrDamaged, t.Name, bus.BucketKeys)
	case err != nil:
		k.mu.Lock()
		k.missed = time.Now()
		k.mu.Unlock()
		return nil, err
	case opaque.KeyID(r.Key) != t.KeyID || r.Domain != t.Order.Domain():
		return nil, fmt.Errorf("%w: the key of %s (bucket %s) is not the one with which its IDs were made: restore the bucket from a backup",
			allocator.ErrDamaged, t.Name, bus.BucketKeys)
	}
	p, err := opaque.New(r.Domain, r.Key)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == nil {
		k.of, k.wrong = make(map[string]*opaque.Permutation), make(map[string]error)
	}
	k.of[t.Name] = p
	k.any.Store(true)
	return p, nil
}

// preload loads the key of a tag that the watch has found, so that this generator can conceal the numbers of another one while JetStream
// is away. While keys cannot be read it reads none: the watch must go on.
func (k *opaqueKeys) preload(ctx context.Context, t allocator.Tag) {
	k.mu.RLock()
	missed, has := k.missed, k.of[t.Name] != nil
	k.mu.RUnlock()
	if !has && (t.Order.Domain() == "" || time.Since(missed) < watchCheck) {
		return
	}
	if _, err := k.load(ctx, t); errors.Is(err, allocator.ErrDamaged) && k.lost.Add(1) <= maxLostLogged {
		k.cfg.log().Error("an opaque tag cannot be served", "tag", t.Name, "error", err)
	}
}

// errNoKey: the bucket has no key of a tag.
var errNoKey = errors.New("no key")

// read reads a key from the leader of the bucket: another replica may not have it yet.
func (k *opaqueKeys) read(ctx context.Context, tag string) (keyRecord, error) {
	stream, err := leaderOf(ctx, k.cfg.JS, bus.BucketKeys)
	var msg *jetstream.RawStreamMsg
	if err == nil {
		msg, err = stream.GetLastMsgForSubject(ctx, subjectOf(bus.BucketKeys)+tag)
	}
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrMsgNotFound):
		return keyRecord{}, errNoKey
	case err != nil:
		return keyRecord{}, fmt.Errorf("%w: reading the key of %s (bucket %s): %w", allocator.ErrUnavailable, tag, bus.BucketKeys, err)
	}
	return decodeKey(tag, msg.Data)
}

// decodeKey reads the record of a key. Its errors do not quote it.
func decodeKey(tag string, data []byte) (r keyRecord, err error) {
	err = decodeWhole(data, &r)
	domain, bad := opaque.ParseDomain(string(r.Domain))
	if err != nil || bad != nil || domain != r.Domain || len(r.Key) != opaque.KeySize {
		return keyRecord{}, fmt.Errorf("%w: the key of %s (bucket %s) cannot be read: restore the bucket from a backup",
			allocator.ErrDamaged, tag, bus.BucketKeys)
	}
	return r, nil
}

// openKeys opens the bucket, and creates it if it is missing and mayBegin allows that.
func openKeys(ctx context.Context, cfg Config, mayBegin func() error) (jetstream.KeyValue, error) {
	return openStream(ctx, cfg, bus.BucketKeys, keysBytes, func(replicas int, maxBytes int64) error {
		if err := mayBegin(); err != nil {
			return err
		}
		_, err := cfg.JS.CreateStream(ctx, jetstream.StreamConfig{
			Name:                 streamOf(bus.BucketKeys),
			Description:          "Leafbus: the keys of opaque tags. Whoever can read them can reveal IDs",
			Subjects:             []string{subjectOf(bus.BucketKeys) + ">"},
			Storage:              jetstream.FileStorage,
			Replicas:             replicas,
			MaxBytes:             maxBytes,
			MaxMsgsPerSubject:    1,
			Discard:              jetstream.DiscardNew,
			DiscardNewPerSubject: true,
			DenyDelete:           true,
			DenyPurge:            true,
		})
		return err
	})
}

// make returns the key for a new tag: the one that the name has, or else a new one. Several generators may make one:
// the first write counts. If the bucket is lost it makes neither.
func (k *opaqueKeys) make(ctx context.Context, tag string, d opaque.Domain) (key []byte, err error) {
	kv, err := openKeys(ctx, k.cfg, sync.OnceValue(func() error { return k.mayBegin(ctx) })) // once for all replicas that are tried
	if err != nil {
		return nil, err
	}
	r, err := k.read(ctx, tag)
	if errors.Is(err, errNoKey) {
		r = keyRecord{Domain: d, Key: opaque.NewKey()}
		var data []byte
		if data, err = json.Marshal(r); err != nil {
			return nil, err
		}
		_, err = kv.Update(ctx, tag, data, 0)
		switch {
		case errors.Is(err, jetstream.ErrKeyRevisionMismatch), errors.Is(err, jetstream.ErrKeyExists): // another generator was first
			r, err = k.read(ctx, tag)
		case full(err):
			err = fmt.Errorf("writing the key of %s: %w", tag, failedWrite(err))
		case err != nil: // if it happened, the next attempt finds the key
			err = fmt.Errorf("%w: writing the key of %s: %w", allocator.ErrUncertain, tag, err)
		}
	}
	if err != nil {
		return nil, err
	}
	if r.Domain != d {
		return nil, fmt.Errorf("%s: %w", tag, allocator.OrderConflict(allocator.OpaqueOrder(r.Domain)))
	}
	return r.Key, nil
}
