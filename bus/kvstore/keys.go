package kvstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/bus"
)

// keyTimeout bounds the reading of a key. It can be repeated safely.
const keyTimeout = time.Second

// Keys are the permutations of opaque tags. Their keys are in the bucket LEAF_KEYS, which is made with the first opaque tag. It
// implements [allocator.Keys]. Its methods are safe for concurrent use.
//
// A key is written once, and outlives its tag: the stream refuses later versions, deletions and purges. The tag's record has the
// ID of its key. So a tag without a key, or with another one, is refused: two keys would make the same ID of two numbers. A key
// that was read stays in memory. It is the right one for life, so a generator that has it goes on if the bucket is lost. If the
// tag's record then names another key, records and keys were lost together and the name was created again: this generator refuses
// the tag while that lasts.
type Keys struct {
	cfg Config

	mu    sync.RWMutex
	of    map[string]*opaque.Permutation // by tag
	wrong map[string]error               // by tag: its record, as it was read last, does not go with of
}

var _ allocator.Keys = (*Keys)(nil)

// NewKeys returns keys of which none is in memory.
func NewKeys(cfg Config) *Keys {
	return &Keys{cfg: cfg, of: make(map[string]*opaque.Permutation), wrong: make(map[string]error)}
}

// Known returns the permutation of a tag, if it is opaque and its key is in memory; else nil. An error says that the tag's record
// names another key: then it must make no IDs.
func (k *Keys) Known(tag string) (*opaque.Permutation, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.of[tag], k.wrong[tag]
}

// check compares a tag's record with the permutation in memory, which it returns; nil: there is none.
func (k *Keys) check(t allocator.Tag) (p *opaque.Permutation, wrong error) {
	p, was := k.Known(t.Name)
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

// Load implements [allocator.Keys].
func (k *Keys) Load(ctx context.Context, t allocator.Tag) error {
	_, err := k.Permutation(ctx, t)
	return err
}

// Permutation returns that of an opaque tag by its record, of a deleted tag too; nil: the tag is not opaque. The errors are those
// of Load.
func (k *Keys) Permutation(ctx context.Context, t allocator.Tag) (*opaque.Permutation, error) {
	if p, err := k.check(t); p != nil || err != nil || t.Order.Domain() == "" {
		return p, err
	}
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	r, err := k.read(ctx, t.Name)
	switch {
	case errors.Is(err, errNoKey):
		return nil, fmt.Errorf("%w: the key of %s is lost (bucket %s), and a new key would repeat IDs: "+
			"restore the bucket from a backup", allocator.ErrDamaged, t.Name, bus.BucketKeys)
	case err != nil:
		return nil, err
	case opaque.KeyID(r.Key) != t.KeyID || r.Domain != t.Order.Domain():
		return nil, fmt.Errorf("%w: the key of %s (bucket %s) is not the one with which its IDs were made: "+
			"restore the bucket from a backup", allocator.ErrDamaged, t.Name, bus.BucketKeys)
	}
	p, err := opaque.New(r.Domain, r.Key)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.of[t.Name] = p
	return p, nil
}

// errNoKey: the bucket has no key of a tag.
var errNoKey = errors.New("no key")

// keyRecord is the JSON of a key.
type keyRecord struct {
	Domain opaque.Domain `json:"domain"`
	Key    []byte        `json:"key"`
}

// read reads a key from the leader of the bucket: another replica may not have it yet.
func (k *Keys) read(ctx context.Context, tag string) (keyRecord, error) {
	stream, err := leaderOf(ctx, k.cfg.JS, bus.BucketKeys)
	var msg *jetstream.RawStreamMsg
	if err == nil {
		msg, err = stream.GetLastMsgForSubject(ctx, subjectOf(bus.BucketKeys)+tag)
	}
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrMsgNotFound):
		return keyRecord{}, errNoKey
	case err != nil:
		return keyRecord{}, fmt.Errorf("%w: reading the key of %s (bucket %s): %w",
			allocator.ErrUnavailable, tag, bus.BucketKeys, err)
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
