package generator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/opaque"
)

// keysLost is the kind of the finding about the keys of opaque tags.
const keysLost = "keys.lost"

// Keys are the permutations of opaque tags.
type Keys interface {
	// Known returns the permutation of a tag, if it is opaque and Load or Permutation has succeeded
	// for it; else nil. No numbers of an opaque tag are in memory before.
	Known(tag string) *opaque.Permutation
	// Permutation is that of an opaque tag, of a deleted one too, by its record. Its errors are
	// those of Load.
	Permutation(ctx context.Context, t allocator.Tag) (*opaque.Permutation, error)
	// Check looks whether all generators still have the same secret, and puts a lost one back. t is
	// the record of an opaque tag. An error that matches [allocator.ErrDamaged] says what an
	// operator must do.
	Check(ctx context.Context, t allocator.Tag) error
	allocator.Keys
}

// peerKeys make no secret for the keys while another generator knows opaque tags.
type peerKeys struct {
	Keys
	exchange *exchange
}

// Make implements [allocator.Keys].
func (k peerKeys) Make(
	ctx context.Context, t allocator.Tag, before func(context.Context) (string, error),
) (id string, err error) {
	return k.Keys.Make(ctx, t, func(ctx context.Context) (string, error) {
		if sign, err := before(ctx); sign != "" || err != nil {
			return sign, err
		}
		if err := k.exchange.heartbeats.hearPeers(ctx); err != nil {
			return "", err
		}
		for _, b := range k.exchange.group.present(time.Now()) {
			if b.Opaque {
				return fmt.Sprintf("the generator %s knows opaque tags", b.Node), nil
			}
		}
		return "", nil
	})
}

// look says what is wrong with the keys; nil: nothing is. What the last look found stays while
// JetStream does not say. So the keys are in memory before JetStream is away, and a loss is found,
// and repaired, while a generator has them.
func (k peerKeys) look(ctx context.Context, last error) error {
	tag := k.exchange.cfg.Index.Opaque()
	if tag == "" {
		return nil
	}
	s, err := k.exchange.alloc.Load(ctx, tag)
	if err != nil || s.KeyID == "" { // it is lost, or JetStream is away
		return last
	}
	err = k.Check(ctx, s.Tag)
	if err != nil && !errors.Is(err, allocator.ErrDamaged) && !errors.Is(err, allocator.ErrNewer) {
		return last
	}
	return err
}
