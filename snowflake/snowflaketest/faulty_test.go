package snowflaketest

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/leafbus/leafbus/snowflake"
)

// faultyRegistry breaks one sentence of the contract where a function is set.
type faultyRegistry struct {
	*Memory
	list func(context.Context) ([]snowflake.Entry, error)
	add  func(context.Context, snowflake.Record, snowflake.Choice) (snowflake.Entry, error)
	put  func(context.Context, snowflake.Record, uint64) (uint64, error)
}

func (f faultyRegistry) List(ctx context.Context) ([]snowflake.Entry, error) {
	if f.list == nil {
		return f.Memory.List(ctx)
	}
	return f.list(ctx)
}

func (f faultyRegistry) Add(ctx context.Context, r snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
	if f.add == nil {
		return f.Memory.Add(ctx, r, c)
	}
	return f.add(ctx, r, c)
}

func (f faultyRegistry) Put(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
	if f.put == nil {
		return f.Memory.Put(ctx, r, version)
	}
	return f.put(ctx, r, version)
}

// write puts a record whatever is there.
func (f faultyRegistry) write(r snowflake.Record) snowflake.Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.putLocked(r)
}

// has returns the record of a worker.
func (f faultyRegistry) has(worker int64) (snowflake.Entry, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, ok := f.entries[worker]
	return e, ok
}

// TestFaultyRegistries shows that the suite finds a registry by which two
// holders could have the same worker and time: a suite that passes all is worth
// nothing.
func TestFaultyRegistries(t *testing.T) {
	whole := timeout
	timeout = 100 * time.Millisecond
	defer func() { timeout = whole }()
	ended := make(chan struct{})
	defer close(ended)
	for _, c := range []struct {
		name  string
		spoil func(f *faultyRegistry)
		found []string // by these cases at least
	}{
		{"Put ignores the version", func(f *faultyRegistry) {
			f.put = func(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
				if _, ok := f.has(r.Worker); !ok {
					return 0, snowflake.ErrConflict
				}
				return f.write(r).Version, nil
			}
		}, []string{"Put", "PutAtOnce", "PutConflict", "Restored", "LostPut"}},
		{"Put ignores version 0", func(f *faultyRegistry) {
			f.put = func(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
				if version == 0 {
					return f.write(r).Version, nil
				}
				return f.Memory.Put(ctx, r, version)
			}
		}, []string{"PutConflict", "PutOnNothing"}},
		{"Put takes newer versions", func(f *faultyRegistry) {
			f.put = func(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
				if e, ok := f.has(r.Worker); ok && version > e.Version {
					version = e.Version
				}
				return f.Memory.Put(ctx, r, version)
			}
		}, []string{"PutConflict", "Restored"}},
		{"Put makes what is missing", func(f *faultyRegistry) {
			f.put = func(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
				if _, ok := f.has(r.Worker); !ok {
					return f.write(r).Version, nil
				}
				return f.Memory.Put(ctx, r, version)
			}
		}, []string{"PutOnNothing", "Wiped", "Restored"}},
		{"Put reads, then writes", func(f *faultyRegistry) {
			f.put = func(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
				if e, ok := f.has(r.Worker); !ok || e.Version != version {
					return 0, snowflake.ErrConflict
				}
				runtime.Gosched()
				return f.write(r).Version, nil
			}
		}, []string{"PutAtOnce"}},
		{"a conflict that is written", func(f *faultyRegistry) {
			f.put = func(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
				made, err := f.Memory.Put(ctx, r, version)
				if _, ok := f.has(r.Worker); ok && errors.Is(err, snowflake.ErrConflict) {
					f.write(r)
				}
				return made, err
			}
		}, []string{"PutAtOnce", "PutConflict"}},
		{"a missing record that is written", func(f *faultyRegistry) {
			f.put = func(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
				made, err := f.Memory.Put(ctx, r, version)
				if _, ok := f.has(r.Worker); !ok && errors.Is(err, snowflake.ErrConflict) {
					f.write(r)
				}
				return made, err
			}
		}, []string{"PutOnNothing", "Wiped"}},
		{"a conflict without its name", func(f *faultyRegistry) {
			f.put = func(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
				made, err := f.Memory.Put(ctx, r, version)
				if err != nil {
					err = errors.New("wrong last sequence")
				}
				return made, err
			}
		}, []string{"Put", "PutAtOnce", "PutConflict", "PutOnNothing", "Wiped"}},
		{"Put keeps the version", func(f *faultyRegistry) {
			f.put = func(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
				made, err := f.Memory.Put(ctx, r, version)
				if err == nil {
					f.mu.Lock()
					f.entries[r.Worker] = snowflake.Entry{Record: r, Version: version}
					f.mu.Unlock()
					made = version
				}
				return made, err
			}
		}, []string{"Put", "PutAtOnce", "PutConflict"}},
		{"Put returns the version before", func(f *faultyRegistry) {
			f.put = func(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
				_, err := f.Memory.Put(ctx, r, version)
				return version, err
			}
		}, []string{"Put", "PutOthers"}},
		{"one version for all", func(f *faultyRegistry) {
			f.put = func(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
				made, err := f.Memory.Put(ctx, r, version)
				f.mu.Lock()
				defer f.mu.Unlock()
				for worker, e := range f.entries {
					e.Version = f.version
					f.entries[worker] = e
				}
				return made, err
			}
		}, []string{"PutOthers"}},
		{"Put writes to the neighbour too", func(f *faultyRegistry) {
			f.put = func(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
				made, err := f.Memory.Put(ctx, r, version)
				next := r
				next.Worker++
				if _, ok := f.has(next.Worker); ok && err == nil {
					f.write(next)
				}
				return made, err
			}
		}, []string{"PutOthers"}},
		{"Put removes, then adds", func(f *faultyRegistry) {
			f.put = func(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
				f.mu.Lock()
				e, ok := f.entries[r.Worker]
				if ok && e.Version == version {
					delete(f.entries, r.Worker)
				}
				f.mu.Unlock()
				if !ok || e.Version != version {
					return 0, snowflake.ErrConflict
				}
				runtime.Gosched()
				return f.write(r).Version, nil
			}
		}, []string{"ListAmidPuts"}},
		{"Put keeps the holder", func(f *faultyRegistry) {
			f.put = func(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
				e, _ := f.has(r.Worker)
				r.Incarnation = e.Incarnation
				return f.Memory.Put(ctx, r, version)
			}
		}, []string{"Put"}},
		{"Add overwrites", func(f *faultyRegistry) {
			f.add = func(ctx context.Context, r snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
				r.Worker = c.First
				return f.write(r), nil
			}
		}, []string{"Choice", "Full", "ManyHandles", "LostAdd"}},
		{"Add overwrites when it is full", func(f *faultyRegistry) {
			f.add = func(ctx context.Context, r snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
				e, err := f.Memory.Add(ctx, r, c)
				if err != nil {
					r.Worker = c.Last
					f.write(r)
				}
				return e, err
			}
		}, []string{"Full", "ManyHandles"}},
		{"Add reads, then writes", func(f *faultyRegistry) {
			f.add = func(ctx context.Context, r snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
				for r.Worker = c.First; r.Worker <= c.Last; r.Worker++ {
					if _, ok := f.has(r.Worker); !ok && c.Allows(r.Worker) {
						runtime.Gosched()
						return f.write(r), nil
					}
				}
				return snowflake.Entry{}, snowflake.ErrFull
			}
		}, []string{"ManyHandles"}},
		{"Add goes below the first", func(f *faultyRegistry) {
			f.add = func(ctx context.Context, r snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
				c.First = 0
				return f.Memory.Add(ctx, r, c)
			}
		}, []string{"AddAndList", "Choice", "ManyHandles"}},
		{"Add goes above the last", func(f *faultyRegistry) {
			f.add = func(ctx context.Context, r snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
				c.Last++
				return f.Memory.Add(ctx, r, c)
			}
		}, []string{"Full", "Choice", "ManyHandles"}},
		{"Add ignores claims", func(f *faultyRegistry) {
			f.add = func(ctx context.Context, r snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
				c.Taken = nil
				return f.Memory.Add(ctx, r, c)
			}
		}, []string{"Choice"}},
		{"Add without a version", func(f *faultyRegistry) {
			f.add = func(ctx context.Context, r snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
				e, err := f.Memory.Add(ctx, r, c)
				e.Version = 0
				return e, err
			}
		}, []string{"AddAndList"}},
		{"the high bits are lost", func(f *faultyRegistry) {
			f.add = func(ctx context.Context, r snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
				c.First, c.Last = c.First%1024, c.Last%1024
				return f.Memory.Add(ctx, r, c)
			}
		}, []string{"AddAndList"}},
		{"List forgets a time", func(f *faultyRegistry) {
			f.list = func(ctx context.Context) ([]snowflake.Entry, error) {
				entries, err := f.Memory.List(ctx)
				for i := range entries {
					entries[i].Acquired = 0
				}
				return entries, err
			}
		}, []string{"AddAndList"}},
		{"List in any order", func(f *faultyRegistry) {
			f.list = func(ctx context.Context) ([]snowflake.Entry, error) {
				entries, err := f.Memory.List(ctx)
				slices.Reverse(entries)
				return entries, err
			}
		}, []string{"AddAndList"}},
		{"a backup that is not seen", func(f *faultyRegistry) {
			seen := make(map[int64]snowflake.Entry)
			f.list = func(ctx context.Context) ([]snowflake.Entry, error) {
				entries, err := f.Memory.List(ctx)
				f.mu.Lock()
				defer f.mu.Unlock()
				for i, e := range entries {
					if seen[e.Worker].Version > e.Version {
						entries[i] = seen[e.Worker]
					}
					seen[e.Worker] = entries[i]
				}
				return entries, err
			}
			f.put = func(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
				made, err := f.Memory.Put(ctx, r, version)
				f.mu.Lock()
				defer f.mu.Unlock()
				if err == nil {
					seen[r.Worker] = snowflake.Entry{Record: r, Version: made}
				}
				return made, err
			}
		}, []string{"Restored"}},
		{"a handle is dead after a wipe", func(f *faultyRegistry) {
			used := false
			f.put = func(ctx context.Context, r snowflake.Record, version uint64) (uint64, error) {
				f.mu.Lock()
				dead := used && len(f.entries) == 0
				used = true
				f.mu.Unlock()
				if dead {
					return 0, errors.New("no such bucket")
				}
				return f.Memory.Put(ctx, r, version)
			}
		}, []string{"Wiped"}},
		{"contexts are ignored", func(f *faultyRegistry) {
			f.put = func(_ context.Context, r snowflake.Record, version uint64) (uint64, error) {
				return f.Memory.Put(context.Background(), r, version)
			}
		}, []string{"ContextDone"}},
		{"List hangs", func(f *faultyRegistry) {
			f.list = func(ctx context.Context) ([]snowflake.Entry, error) {
				<-ended
				return nil, ctx.Err()
			}
		}, []string{"ContextDone"}},
	} {
		open := memoryBackend(func(m *Memory) snowflake.Registry {
			f := &faultyRegistry{Memory: m}
			c.spoil(f)
			return f
		})
		for _, name := range c.found {
			t.Run(c.name+"/"+name, func(t *testing.T) { wantFound(t, open, name) })
		}
	}
}

// wantFound runs a case, which must fail.
func wantFound(t *testing.T, open func(testing.TB) Backend, name string) {
	i := slices.IndexFunc(Cases(), func(c Case) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no case %s", name)
	}
	for range 50 { // some need a race to show: a few tries
		r := &recorder{TB: t}
		r.run(func() { Cases()[i].Run(r, open(r)) })
		if r.failed() {
			return
		}
	}
	t.Errorf("%s did not find it", name)
}
