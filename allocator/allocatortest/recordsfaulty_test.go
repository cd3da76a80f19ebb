package allocatortest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator"
)

// wrong is records of which some methods are wrong.
type wrong struct {
	*MemoryRecords
	swap  func(ctx context.Context, t allocator.Tag, revision uint64) (uint64, error)
	load  func(ctx context.Context, tag string) (allocator.Stored, error)
	watch func(ctx context.Context, f func(allocator.Update)) error
	sync  func(ctx context.Context) error
}

func (w wrong) Swap(ctx context.Context, t allocator.Tag, revision uint64) (uint64, error) {
	if w.swap != nil {
		return w.swap(ctx, t, revision)
	}
	return w.MemoryRecords.Swap(ctx, t, revision)
}

func (w wrong) Load(ctx context.Context, tag string) (allocator.Stored, error) {
	if w.load != nil {
		return w.load(ctx, tag)
	}
	return w.MemoryRecords.Load(ctx, tag)
}

func (w wrong) Watch(ctx context.Context, f func(allocator.Update)) error {
	if w.watch != nil {
		return w.watch(ctx, f)
	}
	return w.MemoryRecords.Watch(ctx, f)
}

func (w wrong) Sync(ctx context.Context) error {
	if w.sync != nil {
		return w.sync(ctx)
	}
	return w.MemoryRecords.Sync(ctx)
}

// always writes a record whatever the revision.
func always(m *MemoryRecords, t allocator.Tag) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.putLocked(allocator.Update{Stored: allocator.Stored{Tag: t}})
}

// TestFaultyRecords: each of these breaks the contract, and the named case of the suite finds it.
func TestFaultyRecords(t *testing.T) {
	background := context.Background()
	for _, faulty := range []struct {
		name, by string
		make     func(m *MemoryRecords, n *atomic.Int64) wrong // n counts, for all handles of a test
	}{
		{"a Swap ignores the revision", "ManyClaims", func(m *MemoryRecords, _ *atomic.Int64) (w wrong) {
			w.swap = func(_ context.Context, t allocator.Tag, _ uint64) (uint64, error) { return always(m, t), nil }
			return w
		}},
		{"a Swap of a tag without a record writes whatever there is", "OtherRevision",
			func(m *MemoryRecords, _ *atomic.Int64) (w wrong) {
				w.swap = func(ctx context.Context, t allocator.Tag, revision uint64) (uint64, error) {
					if revision == 0 {
						return always(m, t), nil
					}
					return m.Swap(ctx, t, revision)
				}
				return w
			}},
		{"a Swap accepts a higher revision", "OtherRevision", func(m *MemoryRecords, _ *atomic.Int64) (w wrong) {
			w.swap = func(ctx context.Context, t allocator.Tag, revision uint64) (uint64, error) {
				if s, _ := m.Load(ctx, t.Name); s.Revision > 0 && revision > s.Revision {
					revision = s.Revision
				}
				return m.Swap(ctx, t, revision)
			}
			return w
		}},
		{"a Swap compares with the revision of any tag", "OtherRevision",
			func(m *MemoryRecords, _ *atomic.Int64) (w wrong) {
				w.swap = func(ctx context.Context, t allocator.Tag, revision uint64) (uint64, error) {
					for _, s := range m.Snapshot() {
						if s.Revision == revision {
							return always(m, t), nil
						}
					}
					return m.Swap(ctx, t, revision)
				}
				return w
			}},
		{"a Swap that lost lands late", "ManyClaims", func(m *MemoryRecords, n *atomic.Int64) (w wrong) {
			w.swap = func(ctx context.Context, t allocator.Tag, revision uint64) (uint64, error) {
				if n.Add(1)%10 == 0 && revision > 0 { // before the answer arrives, another one is the next
					m.Swap(ctx, t, revision)
					return 0, allocator.ErrConflict
				}
				return m.Swap(ctx, t, revision)
			}
			return w
		}},
		{"a Swap that ended with its context lands late", "LateSwaps",
			func(m *MemoryRecords, _ *atomic.Int64) (w wrong) {
				w.swap = func(ctx context.Context, t allocator.Tag, revision uint64) (uint64, error) {
					if end, _ := ctx.Deadline(); time.Until(end) < timeout/2 {
						time.AfterFunc(2*poll, func() { always(m, t) })
						<-ctx.Done()
						return 0, fmt.Errorf("%w: %w", allocator.ErrUncertain, ctx.Err())
					}
					return m.Swap(ctx, t, revision)
				}
				return w
			}},
		{"a Swap is counted as done and is not", "FirstWrite", func(m *MemoryRecords, n *atomic.Int64) (w wrong) {
			w.swap = func(ctx context.Context, t allocator.Tag, revision uint64) (uint64, error) {
				if n.Add(1)%5 == 0 {
					return revision + 1, nil
				}
				return m.Swap(ctx, t, revision)
			}
			return w
		}},
		{"two writes have one revision", "ManyClaims", func(m *MemoryRecords, n *atomic.Int64) (w wrong) {
			w.swap = func(ctx context.Context, t allocator.Tag, revision uint64) (uint64, error) {
				revision, err := m.Swap(ctx, t, revision)
				if err == nil && revision > 1 && n.Add(1)%2 == 0 {
					m.mu.Lock()
					defer m.mu.Unlock()
					u := m.records[t.Name]
					m.last, u.Revision = m.last-1, u.Revision-1
					m.records[t.Name], revision = u, u.Revision
				}
				return revision, err
			}
			return w
		}},
		{"a stale Load has the new revision", "ManyClaims", func(m *MemoryRecords, _ *atomic.Int64) (w wrong) {
			stale := make(map[string]allocator.Tag)
			w.load = func(ctx context.Context, tag string) (allocator.Stored, error) {
				s, err := m.Load(ctx, tag)
				now := s.Tag
				if old, ok := stale[tag]; ok {
					s.Tag = old
				}
				stale[tag] = now
				return s, err
			}
			return w
		}},
		{"a field is lost", "Fields", func(m *MemoryRecords, _ *atomic.Int64) (w wrong) {
			w.swap = func(ctx context.Context, t allocator.Tag, revision uint64) (uint64, error) {
				t.Floor = 0
				return m.Swap(ctx, t, revision)
			}
			return w
		}},
		{"a damaged record is none", "Spoiled", func(m *MemoryRecords, _ *atomic.Int64) (w wrong) {
			w.load = func(ctx context.Context, tag string) (allocator.Stored, error) {
				s, err := m.Load(ctx, tag)
				if err != nil {
					return allocator.Stored{}, nil
				}
				return s, nil
			}
			return w
		}},
		{"a watch drops a change", "Watch", func(m *MemoryRecords, n *atomic.Int64) (w wrong) {
			w.watch = func(ctx context.Context, f func(allocator.Update)) error {
				return m.Watch(ctx, func(u allocator.Update) {
					if u.First || n.Add(1)%4 != 0 {
						f(u)
					}
				})
			}
			return w
		}},
		{"a watch leaves tombstones out", "Watch", func(m *MemoryRecords, _ *atomic.Int64) (w wrong) {
			w.watch = func(ctx context.Context, f func(allocator.Update)) error {
				return m.Watch(ctx, func(u allocator.Update) {
					if !u.Deleted {
						f(u)
					}
				})
			}
			return w
		}},
		{"a watch brings old records again", "Watch", func(m *MemoryRecords, _ *atomic.Int64) (w wrong) {
			w.watch = func(ctx context.Context, f func(allocator.Update)) error {
				before := make(map[string]allocator.Update)
				return m.Watch(ctx, func(u allocator.Update) {
					f(u)
					if old := before[u.Name]; old.Revision > 0 && !old.First {
						f(old)
						f(u)
					}
					before[u.Name] = u
				})
			}
			return w
		}},
		{"a watch does not bring a damaged record", "Spoiled", func(m *MemoryRecords, _ *atomic.Int64) (w wrong) {
			w.watch = func(ctx context.Context, f func(allocator.Update)) error {
				return m.Watch(ctx, func(u allocator.Update) {
					if u.Problem == nil {
						f(u)
					}
				})
			}
			return w
		}},
		{"every change comes as a first one", "Watch", func(m *MemoryRecords, _ *atomic.Int64) (w wrong) {
			w.watch = func(ctx context.Context, f func(allocator.Update)) error {
				return m.Watch(ctx, func(u allocator.Update) { u.First = true; f(u) })
			}
			return w
		}},
		{"a watch goes on from its last revision", "Restored", func(m *MemoryRecords, _ *atomic.Int64) (w wrong) {
			w.watch = func(ctx context.Context, f func(allocator.Update)) error {
				last := uint64(0)
				return m.Watch(ctx, func(u allocator.Update) {
					if u.Revision > last {
						last = u.Revision
						f(u)
					}
				})
			}
			return w
		}},
		{"a watch ends without an error", "Watch", func(m *MemoryRecords, _ *atomic.Int64) (w wrong) {
			w.watch = func(ctx context.Context, f func(allocator.Update)) error { m.Watch(ctx, f); return nil }
			return w
		}},
		{"a Sync returns early", "Sync", func(m *MemoryRecords, _ *atomic.Int64) (w wrong) {
			w.sync = func(ctx context.Context) error { go m.Sync(ctx); return nil }
			return w
		}},
		{"a Sync does not begin again", "Sync", func(m *MemoryRecords, _ *atomic.Int64) (w wrong) {
			w.sync = func(ctx context.Context) error { sleep(ctx, poll); return nil }
			return w
		}},
		{"a Sync without a watch returns", "SyncWaits", func(m *MemoryRecords, _ *atomic.Int64) (w wrong) {
			w.sync = func(ctx context.Context) error {
				m.mu.Lock()
				watched := len(m.log) > 5
				m.mu.Unlock()
				if watched {
					return m.Sync(ctx)
				}
				return nil
			}
			return w
		}},
		{"a call outlasts its context", "ContextDone", func(m *MemoryRecords, _ *atomic.Int64) (w wrong) {
			w.load = func(ctx context.Context, tag string) (allocator.Stored, error) {
				if ctx.Err() != nil {
					sleep(background, 2*soon)
				}
				return m.Load(ctx, tag)
			}
			return w
		}},
	} {
		t.Run(faulty.name, func(t *testing.T) {
			for _, c := range RecordsCases() {
				if c.Name != faulty.by {
					continue
				}
				failed := attempt(t, func(tb testing.TB) {
					var n atomic.Int64
					b := recordsIn(func(m *MemoryRecords) allocator.Records {
						w := faulty.make(m, &n)
						w.MemoryRecords = m
						return w
					})(tb)
					b.Restart = nil
					c.Run(tb, b)
				})
				if failed == "" {
					t.Errorf("%s passed", c.Name)
				} else {
					t.Logf("%s: %s", c.Name, failed)
				}
			}
		})
	}
}
