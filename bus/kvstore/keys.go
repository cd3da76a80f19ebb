package kvstore

import (
	"bytes"
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
	"github.com/leafbus/leafbus/internal/wire"
)

const (
	// masterKey is the key of the only record.
	masterKey = "master"
	// masterFormat is the format of the record that this version writes.
	masterFormat = 1
	// keyTimeout bounds the reading of the record. It can be repeated safely.
	keyTimeout = time.Second
	// maxPermutations is how many permutations stay in memory. One needs 700 bytes, and is made
	// again in 2 µs.
	maxPermutations = 10_000
)

// Keys makes the keys of opaque tags from one master key, which is the only record of the bucket
// LEAF_KEYS. The bucket is made with the first opaque tag, and the stream refuses later versions,
// deletions and purges. It implements [allocator.Keys]. Its methods are safe for concurrent use.
//
// A tag's record has the ID of its key. So a tag is refused if the master key is lost, or is
// another one: two keys would make the same ID of two numbers. A master key that fits a record
// stays in memory, for life: this generator goes on if the bucket is lost, and writes it back. It
// refuses tags whose records name a key of another one.
type Keys struct {
	cfg Config
	any atomic.Bool // there is a master key in memory; most installations have no opaque tags

	mu           sync.RWMutex
	master       []byte                         // nil: none has fitted a record yet
	domains      map[string]opaque.Domain       // of the tags whose keys were used: they are opaque for good
	permutations map[string]*opaque.Permutation // of some of them
}

var _ allocator.Keys = (*Keys)(nil)

// NewKeys returns keys without a master key in memory.
func NewKeys(cfg Config) *Keys {
	return &Keys{cfg: cfg, domains: make(map[string]opaque.Domain), permutations: make(map[string]*opaque.Permutation)}
}

// Known returns the permutation of a tag, if it is opaque and [Keys.Load] has succeeded for it;
// else nil.
func (k *Keys) Known(tag string) *opaque.Permutation {
	if !k.any.Load() {
		return nil
	}
	k.mu.RLock()
	d, p := k.domains[tag], k.permutations[tag]
	k.mu.RUnlock()
	if p == nil && d != "" {
		k.mu.Lock()
		defer k.mu.Unlock()
		p = k.permutationLocked(tag, d)
	}
	return p
}

// permutationLocked makes the permutation of a tag, and remembers it.
func (k *Keys) permutationLocked(tag string, d opaque.Domain) *opaque.Permutation {
	p, err := opaque.New(d, opaque.DeriveKey(k.master, tag, d))
	if err != nil {
		panic(err) // neither the domain nor the key can be wrong here
	}
	if len(k.permutations) >= maxPermutations {
		clear(k.permutations)
	}
	k.domains[tag], k.permutations[tag] = d, p
	return p
}

// Load implements [allocator.Keys].
func (k *Keys) Load(ctx context.Context, t allocator.Tag) error {
	_, err := k.Permutation(ctx, t)
	return err
}

// Permutation returns that of an opaque tag by its record, of a deleted tag too. The errors are
// those of Load.
func (k *Keys) Permutation(ctx context.Context, t allocator.Tag) (*opaque.Permutation, error) {
	if p := k.Known(t.Name); p != nil && p.KeyID() == t.KeyID && p.Domain() == t.Order.Domain() {
		return p, nil
	}
	master := k.held()
	if master == nil {
		var err error
		if master, err = k.read(ctx); err != nil {
			return nil, fmt.Errorf("the opaque tag %s: %w", t.Name, err)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.master != nil {
		master = k.master
	}
	d := t.Order.Domain()
	if was := k.domains[t.Name]; opaque.KeyID(opaque.DeriveKey(master, t.Name, d)) != t.KeyID || was != "" && was != d {
		return nil, fmt.Errorf("%w: the master key (bucket %s) is not the one with which the IDs of %s were made, "+
			"or its record (bucket %s) is another one: restore both buckets from a backup",
			allocator.ErrDamaged, wire.BucketKeys, t.Name, wire.BucketTags)
	}
	k.master = master
	k.any.Store(true)
	return k.permutationLocked(t.Name, d), nil
}

// held is the master key in memory; nil: there is none.
func (k *Keys) held() []byte {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.master
}

// Make implements [allocator.Keys]. It has no effect on memory: only a record shows that the master
// key is the right one.
func (k *Keys) Make(
	ctx context.Context, t allocator.Tag, before func(context.Context) (string, error),
) (id string, err error) {
	master, err := k.agreed(ctx)
	if errors.Is(err, errNoMaster) {
		switch sign, err := before(ctx); {
		case err != nil:
			return "", fmt.Errorf("%w: whether there were opaque tags is not known: %w", allocator.ErrUnavailable, err)
		case sign != "":
			return "", fmt.Errorf("%w: %w; %s, and no opaque tag is created meanwhile",
				allocator.ErrUnavailable, errNoMaster, sign)
		}
		master, err = k.write(ctx, opaque.NewMaster())
	}
	if err != nil {
		return "", err
	}
	return opaque.KeyID(opaque.DeriveKey(master, t.Name, t.Order.Domain())), nil
}

// Check compares the bucket with the master key in memory, and writes that back if it is lost. If
// there is none in memory, it loads the one of t, which is the record of any opaque tag. An error
// that matches [allocator.ErrDamaged] says what is wrong with the keys.
func (k *Keys) Check(ctx context.Context, t allocator.Tag) error {
	if k.held() == nil {
		return k.Load(ctx, t)
	}
	_, err := k.agreed(ctx)
	return err
}

// agreed returns the master key that the bucket has. Memory has the same one, or none.
func (k *Keys) agreed(ctx context.Context) ([]byte, error) {
	held := k.held()
	master, err := k.read(ctx)
	if held != nil && errors.Is(err, errNoMaster) {
		if master, err = k.write(ctx, held); err == nil {
			k.cfg.log().Error("JetStream lost the master key of opaque tags, and has it again from this generator",
				"bucket", wire.BucketKeys)
		}
	}
	if err == nil && held != nil && !bytes.Equal(held, master) {
		err = fmt.Errorf("%w: bucket %s has a second master key: this generator goes on with the first one; "+
			"see docs/operate.md#lost-keys", allocator.ErrDamaged, wire.BucketKeys)
	}
	return master, err
}

// errNoMaster: the bucket, or its record, is missing.
var errNoMaster = fmt.Errorf("%w: JetStream lost the master key of opaque tags (bucket %s): restore the bucket "+
	"from a backup, see docs/operate.md#lost-keys", allocator.ErrDamaged, wire.BucketKeys)

// read reads the master key from the leader of the bucket: another replica may not have it yet.
func (k *Keys) read(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	b, err := find(ctx, k.cfg, wire.BucketKeys)
	var r Record
	if err == nil {
		r, err = b.get(ctx, masterKey)
	}
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), err == nil && r.revision == 0:
		return nil, errNoMaster
	case err != nil:
		return nil, fmt.Errorf("%w: reading the master key: %w", allocator.ErrUnavailable, err)
	}
	return decodeMaster(r.Value)
}

// write writes the master key unless there is one, and returns the one that counts: another
// generator may be first. After a write without an answer, the next attempt finds what happened.
func (k *Keys) write(ctx context.Context, master []byte) ([]byte, error) {
	b, err := open(ctx, k.cfg, wire.BucketKeys)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", allocator.ErrUnavailable, err)
	}
	data, err := json.Marshal(masterRecord{masterFormat, master})
	if err != nil {
		return nil, err
	}
	_, err = b.put(ctx, masterKey, data, 0)
	switch {
	case errors.Is(err, allocator.ErrConflict):
		return k.read(ctx)
	case err != nil:
		return nil, fmt.Errorf("writing the master key: %w", err)
	}
	return master, nil
}

// masterRecord is the JSON of the master key.
type masterRecord struct {
	Format int    `json:"format"`
	Key    []byte `json:"key"`
}

// decodeMaster reads the record. Its errors do not quote it.
func decodeMaster(data []byte) ([]byte, error) {
	var r masterRecord
	err := decodeWhole(data, &r)
	if r.Format > masterFormat {
		return nil, fmt.Errorf("%w: the master key (bucket %s)", allocator.ErrNewer, wire.BucketKeys)
	}
	if err != nil || r.Format != masterFormat || len(r.Key) != opaque.MasterSize {
		return nil, fmt.Errorf("%w: the master key of opaque tags (bucket %s) cannot be read: "+
			"restore the bucket from a backup", allocator.ErrDamaged, wire.BucketKeys)
	}
	return r.Key, nil
}
