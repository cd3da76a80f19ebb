package allocator

import (
	"context"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/leafbus/leafbus/bus/idspace"
)

// memory has the buffers of the tags that were used lately. Each of its locks comes before those of
// buffers.
//
//	lockedOrNew, lockedBuffer     find them
//	drop, forget, sweep ── evict  take them out
//	Views, Totals, Seen, Known    say what they have
type memory struct {
	cfg         *Config
	alarms      *alarms
	ctx         context.Context // of all refills; no tag comes after its end
	shards      [shardCount]shard
	strictNames sync.Map // of tags that were here: an order is for life
}

func newMemory(ctx context.Context, cfg *Config, al *alarms) *memory {
	m := &memory{cfg: cfg, alarms: al, ctx: ctx}
	for i := range m.shards {
		m.shards[i].buffers = make(map[string]*buffer)
	}
	return m
}

// buffer returns the buffer of tag, a new one if the tag has none. Only the first
// refill shows whether the tag exists.
func (m *memory) buffer(tag string) (*buffer, error) {
	s := m.shard(tag)
	if b := s.get(tag); b != nil {
		return b, nil
	}
	if err := idspace.CheckTag(tag); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.ctx.Err() != nil {
		return nil, ErrClosed
	}
	b := s.buffers[tag]
	if b == nil {
		b = &buffer{tag: strings.Clone(tag)} // not the whole subject that it is a part of
		s.buffers[b.tag] = b
	}
	return b, nil
}

// lockedOrNew returns the buffer of tag, locked.
func (m *memory) lockedOrNew(tag string) (*buffer, error) {
	for {
		b, err := m.buffer(tag)
		if err != nil {
			return nil, err
		}
		if b.mu.Lock(); !b.gone { // if it is gone, the tag may have another buffer
			return b, nil
		}
		b.mu.Unlock()
	}
}

// lockedBuffer returns the buffer of tag, locked; nil if there is none in memory.
func (m *memory) lockedBuffer(tag string) *buffer {
	for {
		b := m.shard(tag).get(tag)
		if b == nil {
			return nil
		}
		if b.mu.Lock(); !b.gone {
			return b
		}
		b.mu.Unlock()
	}
}

// all returns every buffer.
func (m *memory) all() []*buffer {
	all := make([]*buffer, 0, m.Tags()) // so that it does not grow under a lock
	for i := range m.shards {
		all = m.shards[i].appendTo(all)
	}
	return all
}

// shardCount keeps the time short for which a lock is held while all tags are looked at. With one
// lock for 500,000 tags a request waited up to 27 ms.
const shardCount = 256

// shard is a part of the tags in memory.
type shard struct {
	mu      sync.RWMutex
	buffers map[string]*buffer
}

var shardSeed = maphash.MakeSeed()

func (m *memory) shard(tag string) *shard {
	return &m.shards[maphash.String(shardSeed, tag)%shardCount]
}

func (s *shard) get(tag string) *buffer {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.buffers[tag]
}

func (s *shard) appendTo(all []*buffer) []*buffer {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.AppendSeq(all, maps.Values(s.buffers))
}

// Tags is how many tags are in memory.
func (m *memory) Tags() (n int) {
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.RLock()
		n += len(s.buffers)
		s.mu.RUnlock()
	}
	return n
}
