package kvstore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/bus"
)

const (
	// loadsAtOnce is how many records of a list are read at a time.
	loadsAtOnce = 16
	// loadsAhead is how many records are read before the list looks whether it has enough.
	loadsAhead = 1024
)

// List implements [allocator.Store]. It reads the records of the page alone.
func (s *Store) List(ctx context.Context, q allocator.Query) ([]allocator.Tag, error) {
	kv, err := s.bucket()
	if err != nil {
		return nil, err
	}
	names, err := s.sortedNames(ctx, kv)
	if err != nil {
		return nil, err
	}
	var tags []allocator.Tag
	for rest := after(names, q); len(tags) < q.Limit; {
		var some []string
		if some, rest = matching(rest, q, min(q.Limit-len(tags), loadsAhead)); len(some) == 0 {
			break
		}
		loaded, err := loadAll(ctx, kv, some)
		if err != nil {
			return nil, err
		}
		tags = append(tags, loaded...)
	}
	return tags, nil
}

// sortedNames returns the names of all tags, deleted ones too. It takes them from the watch if that has brought as many as the
// bucket has, else it asks the server.
func (s *Store) sortedNames(ctx context.Context, kv jetstream.KeyValue) ([]string, error) {
	info, err := streamInfo(ctx, kv)
	if err != nil {
		return nil, err
	}
	if names, ok := s.names.atLeast(ctx, int(info.State.NumSubjects)); ok {
		return names, nil
	}
	names, err := keys(ctx, s.cfg.JS, bus.BucketTags)
	return slices.Sorted(maps.Keys(names)), err
}

// after returns the names with which a list can begin.
func after(sorted []string, q allocator.Query) []string {
	from, _ := slices.BinarySearch(sorted, max(q.After, q.Prefix))
	return sorted[from:]
}

// matching returns the first names that the list has, at most limit, and the names behind them.
func matching(sorted []string, q allocator.Query, limit int) (found, rest []string) {
	for i, name := range sorted {
		switch {
		case len(found) == limit:
			return found, sorted[i:]
		case !strings.HasPrefix(name, q.Prefix) && name > q.Prefix:
			return found, nil
		case q.Match(name):
			found = append(found, name)
		}
	}
	return found, nil
}

// loadAll reads the records of these names, without those that are deleted.
func loadAll(ctx context.Context, kv jetstream.KeyValue, names []string) ([]allocator.Tag, error) {
	tags := make([]allocator.Tag, len(names))
	err := parallel(ctx, len(names), loadsAtOnce, func(ctx context.Context, i int) error {
		t, _, exists, err := load(ctx, kv, names[i])
		switch {
		case errors.Is(err, allocator.ErrDamaged): // it cannot be served, and must not hide the others
			tags[i] = allocator.Tag{Name: names[i], MaxID: 1}
		case err != nil:
			return err
		case exists && !t.Deleted:
			tags[i] = t
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(tags, func(t allocator.Tag) bool { return t.Name == "" }), nil
}

// parallel calls f for each number below n, so many at a time, until one returns an error.
func parallel(ctx context.Context, n, atOnce int, f func(ctx context.Context, i int) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(atOnce, n) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := f(ctx, i); err != nil {
					fail(err)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
