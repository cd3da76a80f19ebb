package allocatortest

import (
	"context"
	"errors"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/internal/fresh"
)

// Handle is a handle on a [Memory] that claims IDs of strict tags as the store in JetStream does. It reads the record, unless it
// has written it a moment ago, and replaces it if no other handle has changed it since. Its methods are safe for concurrent use.
type Handle struct {
	*Memory
	node    string
	onWrite func(ctx context.Context, write func() error) error
	latest  fresh.Records[allocator.Tag]
}

// NewHandle returns a handle for the generator with the name node. onWrite is called for each write, which it does by calling
// write, once or not at all. It may wait before and after, and return an error of its own. Default: it calls write.
func NewHandle(m *Memory, node string, onWrite func(ctx context.Context, write func() error) error) *Handle {
	if onWrite == nil {
		onWrite = func(_ context.Context, write func() error) error { return write() }
	}
	return &Handle{Memory: m, node: node, onWrite: onWrite}
}

// errRace is the result of a write when the record is not what was read.
var errRace = errors.New("another handle changed the record first")

// Reserve implements [allocator.Store].
func (h *Handle) Reserve(ctx context.Context, tag string, n, from int64) (allocator.Grant, error) {
	at := time.Now()
	old, known := h.latest.Get(tag)
	if !known {
		var err error
		if old, err = h.Get(ctx, tag); err != nil || old.Order != allocator.Strict {
			return h.Memory.Reserve(ctx, tag, n, from)
		}
	}
	if known && (old.Paused || old.Left(old.MaxID) < n) { // an operator may have changed that just now
		h.latest.Forget(tag)
		return h.Reserve(ctx, tag, n, from)
	}
	if old.Paused {
		return allocator.Grant{}, &allocator.PausedError{Rules: old.Rules}
	}
	next, grant := old, allocator.Grant{Step: 1, Order: allocator.Strict, Rules: old.Rules}
	next.Updated = allocator.Now()
	var moved error
	if old.MaxID < from {
		next.MaxID, moved = from, &allocator.AdvancedError{Tag: tag, Got: old.MaxID, Seen: from}
	} else {
		if old.Left(old.MaxID) < n {
			return grant, allocator.ErrExhausted
		}
		grant.Ending = !old.Ending(old.MaxID) && old.Ending(old.MaxID+n)
		grant.Range, next.MaxID = allocator.Range{First: old.MaxID, Last: old.MaxID + n - 1}, old.MaxID+n
		if n > 0 {
			next.Last = allocator.NewClaim(grant.Range, h.node)
		}
	}
	err := h.onWrite(ctx, func() error { return h.swap(old, next) })
	switch {
	case err == nil:
		h.latest.Put(tag, next, at)
		return grant, moved
	case errors.Is(err, errRace):
		err = &allocator.OvertakenError{Tag: tag, Node: old.Last.Node}
	}
	h.latest.Forget(tag)
	return allocator.Grant{}, err
}

// swap replaces a record that is still as it was.
func (m *Memory) swap(old, next allocator.Tag) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tags[old.Name] != old {
		return errRace
	}
	m.tags[old.Name] = next
	m.changedLocked(old.Name)
	return nil
}
