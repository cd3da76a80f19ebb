package kvstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/opaque"
	"github.com/leafbus/leafbus/bus"
)

// keyFor returns the ID of the key of a new opaque tag, where old is the record that it replaces. Should a read have been wrong, and a name
// that had a record gets a second key, then the write of the record fails, and the next attempt finds that the key is another one.
func (s *Store) keyFor(ctx context.Context, tag, old allocator.Tag, exists bool) (id string, err error) {
	if exists {
		if _, err := s.keys.load(ctx, old); errors.Is(err, allocator.ErrDamaged) {
			return "", fmt.Errorf("%w: %w; or choose another name", allocator.ErrConflict, err)
		} else if err != nil {
			return "", err
		}
		return old.KeyID, nil
	}
	had, err := s.hadRecord(ctx, tag.Name)
	if err != nil {
		return "", err
	}
	if p, _ := s.keys.known(tag.Name); had || p != nil {
		if err := s.NeedKey(ctx, tag.Name); err != nil {
			return "", err
		}
	}
	key, err := s.keys.make(ctx, tag.Name, tag.Order.Domain())
	return opaque.KeyID(key), err
}

// NeedKey is the error of a name that was in use before and has no key. It matches [allocator.ErrConflict].
func (s *Store) NeedKey(ctx context.Context, tag string) error {
	_, err := s.keys.read(ctx, tag)
	if errors.Is(err, errNoKey) {
		err = fmt.Errorf("%w: IDs of %s were handed out before, and its key is lost (bucket %s). A new key would repeat them: "+
			"restore the bucket from a backup, or choose another name", allocator.ErrConflict, tag, bus.BucketKeys)
	}
	return err
}

// hadRecord reports whether the record of a tag was deleted by hand.
func (s *Store) hadRecord(ctx context.Context, tag string) (bool, error) {
	_, err := (*s.leader.Load()).GetLastMsgForSubject(ctx, subjectOf(bus.BucketTags)+tag)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Known returns the permutation of a tag, if it is opaque and its key is in memory; else nil. The store returns no range of an opaque tag
// before its key is in memory. An error says that the tag's record names another key: then it must make no IDs.
func (s *Store) Known(tag string) (*opaque.Permutation, error) { return s.keys.known(tag) }

// Permutation returns the permutation of an opaque tag, of a deleted one too. It reads the key if that is not in memory.
func (s *Store) Permutation(ctx context.Context, tag string) (*opaque.Permutation, error) {
	if p, err := s.keys.known(tag); p != nil || err != nil {
		return p, err
	}
	r, err := s.fromLeader(ctx, tag)
	switch {
	case err != nil:
		return nil, err
	case !r.exists:
		return nil, fmt.Errorf("%s: %w", tag, allocator.ErrUnknownTag)
	case r.Order.Domain() == "":
		return nil, fmt.Errorf("%w: %s is not opaque: its numbers are its IDs", allocator.ErrBadValue, tag)
	}
	return s.keys.load(ctx, r.Tag)
}
