package generator

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/opaque"
)

// keysEvery is how often the keys of opaque tags are looked at.
const keysEvery = 5 * time.Second

// Keys are the permutations of opaque tags.
type Keys interface {
	// Known returns the permutation of a tag, if it is opaque and Load or Permutation has succeeded for it; else nil.
	// No numbers of an opaque tag are in memory before.
	Known(tag string) *opaque.Permutation
	// Permutation is that of an opaque tag, of a deleted one too, by its record. Its errors are those of Load.
	Permutation(ctx context.Context, t allocator.Tag) (*opaque.Permutation, error)
	// Check looks whether all generators still have the same secret, and puts a lost one back. t is the record of an
	// opaque tag. An error that matches [allocator.ErrDamaged] says what an operator must do.
	Check(ctx context.Context, t allocator.Tag) error
	allocator.Keys
}

// noKeys are the keys of a generator that keeps no opaque tags.
type noKeys struct{}

var errNoKeys = fmt.Errorf("%w: this generator keeps no opaque tags", allocator.ErrUnavailable)

func (noKeys) Known(string) *opaque.Permutation { return nil }

func (noKeys) Permutation(context.Context, allocator.Tag) (*opaque.Permutation, error) {
	return nil, errNoKeys
}

func (noKeys) Check(context.Context, allocator.Tag) error { return nil }

func (noKeys) Load(context.Context, allocator.Tag) error { return errNoKeys }

func (noKeys) Make(context.Context, allocator.Tag, func(context.Context) (string, error)) (string, error) {
	return "", errNoKeys
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
			if b.Opaque && b.Installation == k.exchange.membership.installation() {
				return fmt.Sprintf("the generator %s knows opaque tags", b.Node), nil
			}
		}
		return "", nil
	})
}

// keyCheck looks at the keys of opaque tags. So they are in memory before JetStream is away, and a loss is found, and
// repaired, while a generator has them. Its methods are safe for concurrent use.
type keyCheck struct {
	cfg   *Config
	alloc *allocator.Allocator
	wrong atomic.Pointer[error] // nil: nothing is
}

// run looks until the context is done.
func (k *keyCheck) run(ctx context.Context) {
	ticker := time.NewTicker(keysEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			k.look(ctx)
		}
	}
}

func (k *keyCheck) look(ctx context.Context) {
	tag := k.cfg.Index.Opaque()
	if tag == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	s, err := k.alloc.Load(ctx, tag)
	if err != nil || s.KeyID == "" { // it is lost, or JetStream is away
		return
	}
	err = k.cfg.Keys.Check(ctx, s.Tag)
	switch {
	case err == nil:
		if k.wrong.Swap(nil) != nil {
			k.cfg.Log.Info("the keys of opaque tags are there again")
		}
	case !errors.Is(err, allocator.ErrDamaged) && !errors.Is(err, allocator.ErrNewer): // what was known before stays
	case k.wrong.Swap(&err) == nil:
		k.cfg.Log.Error("opaque tags cannot be served", "error", err)
	}
}

// err says what is wrong with the keys; nil: as far as is known, nothing is.
func (k *keyCheck) err() error {
	if why := k.wrong.Load(); why != nil {
		return *why
	}
	return nil
}
