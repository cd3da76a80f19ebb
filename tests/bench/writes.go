package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/leafbus/leafbus/allocator"
)

// perRequest is how many IDs are asked for at a time where it is writes that
// are counted.
const perRequest = 1000

// writes counts what the database writes per million IDs, beside a step that
// stays at 1,000. It is steady when the step is as long as it gets: the load is
// the process's most, at which any step is used up within the 15 minutes that
// keep it from getting shorter.
func writes(ctx context.Context, p plan) (t *table, err error) {
	d, err := openDatabase()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	const long = 1_000_000
	segments := int64(10 * p.rounds)
	base, err := d.written(ctx, usage{allocator.DefaultStep, allocator.DefaultStep, allocator.DefaultStep, segments * allocator.DefaultStep})
	if err != nil {
		return nil, err
	}
	t = newTable("writes to MySQL", "IDs", "writes", "per million IDs", "step 1,000's", "times fewer")
	for _, row := range []struct {
		name string
		usage
	}{
		{"step 1,000,000, fixed", usage{long, long, long, segments * long}},
		{"step 1,000, adapted: at first", usage{allocator.DefaultStep, allocator.DefaultMaxStep, 0, long}},
		{"step 1,000, adapted: steady", usage{allocator.DefaultStep, allocator.DefaultMaxStep, allocator.DefaultMaxStep, segments * allocator.DefaultMaxStep}},
	} {
		n, err := d.written(ctx, row.usage)
		if err != nil {
			return nil, err
		}
		t.add(row.name, whole(float64(row.ids)), whole(n*float64(row.ids)/1e6), hundredths(n), hundredths(base), whole(base/n))
	}
	return t, nil
}

// usage is that of a tag.
type usage struct {
	step, maxStep int64
	from          int64 // counted when the step is that long
	ids           int64 // that are counted
}

// written is how many writes the database counts per million IDs.
func (d *database) written(ctx context.Context, u usage) (float64, error) {
	store, err := openStore(ctx, d.dsn)
	if err != nil {
		return 0, err
	}
	defer store.Close()
	tag := fmt.Sprintf("bench.%d.%d", u.step, u.from)
	if _, err := store.Create(ctx, allocator.Tag{Name: tag, MaxID: 1, Step: u.step}); err != nil {
		return 0, err
	}
	alloc := allocator.New(allocator.Config{Store: store, MaxStep: u.maxStep})
	running, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { alloc.Run(running) })
	defer wg.Wait()
	defer stop()
	use := func(ids int64) error {
		for ; ids > 0; ids -= perRequest {
			if _, err := alloc.Take(ctx, tag, perRequest); err != nil {
				return err
			}
		}
		return nil
	}

	for step := int64(0); step < u.from; step = alloc.Busiest(1)[0].Step {
		if err := use(perRequest); err != nil {
			return 0, err
		}
	}
	before, err := d.updates(ctx)
	if err != nil {
		return 0, err
	}
	if err := use(u.ids); err != nil {
		return 0, err
	}
	after, err := d.updates(ctx)
	return (after - before) / float64(u.ids) * 1e6, err
}

// updates is how many the server has done.
func (d *database) updates(ctx context.Context) (n float64, err error) {
	var name string
	err = d.plain.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Com_update'").Scan(&name, &n)
	return n, err
}
