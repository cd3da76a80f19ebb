package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

const (
	// A measurement of snowflakes is this much longer than others, and there are so
	// much fewer: its ends, where a millisecond is not used up, are to weigh little.
	longer = 5
	// A caller looks at its own clock after so many IDs.
	uninterrupted = 1000
)

// snowflakes compares what a generator issues in process with the ceiling of
// the layout, and a generator whose ceiling is kept on disk with one that has no disk.
func snowflakes(ctx context.Context, p plan) (t *table, err error) {
	dir, err := os.MkdirTemp("", "leaf-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file, err := snowflake.OpenFile(filepath.Join(dir, "worker"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	memory, err := snowflake.NewFile(snowflaketest.NewDisk())
	if err != nil {
		return nil, err
	}
	onDisk, stop := flakes(file)
	defer stop()
	inMemory, stop := flakes(memory)
	defer stop()

	layout := snowflake.DefaultLayout()
	most := float64(layout.PerMillisecond()) * 1000
	t = newTable("snowflakes in process", "goroutines", "IDs/s", "of the ceiling", "ceiling", "ratio to no disk")
	for _, count := range []int64{1, 100, 100_000} {
		for _, goroutines := range []int{1, 2} {
			issue := func(g *snowflake.Generator) func() (float64, error) {
				return func() (float64, error) { return issued(ctx, g, goroutines, count, longer*p.duration) }
			}
			results, err := inTurns(ctx, max(1, p.rounds/longer), []func() (float64, error){issue(inMemory), issue(onDisk)})
			if err != nil {
				return nil, err
			}
			base, ours := results[0], results[1]
			rate := median(ours, self)
			t.add("IDs a call: "+whole(float64(count)), strconv.Itoa(goroutines), whole(rate),
				fourPlaces(rate/most), whole(most), fourPlaces(ratio(ours, base, self)))
		}
	}
	return t, nil
}

func self[T any](v T) T { return v }

// flakes runs a generator.
func flakes(file *snowflake.File) (g *snowflake.Generator, stop func()) {
	layout := snowflake.DefaultLayout()
	g = snowflake.New(snowflake.Config{
		Layout: layout, Registry: snowflaketest.NewMemory(), File: file, LastWorker: layout.Workers() - 1,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { g.Run(ctx, "bench") })
	return g, func() { cancel(); running.Wait() }
}

// issued returns how many IDs a second so many goroutines get, count a call.
func issued(ctx context.Context, g *snowflake.Generator, goroutines int, count int64, d time.Duration) (float64, error) {
	got := make([]int64, goroutines)
	failed := make([]error, goroutines)
	if _, err := g.Take(ctx, 1); err != nil { // it may be starting
		return 0, err
	}
	var wg sync.WaitGroup
	begin := time.Now()
	end := begin.Add(d)
	for i := range goroutines {
		wg.Go(func() {
			for time.Now().Before(end) {
				for n := int64(0); n < uninterrupted; n += count {
					if _, failed[i] = g.Take(ctx, count); failed[i] != nil {
						return
					}
					got[i] += count
				}
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(begin).Seconds()
	var total int64
	for _, n := range got {
		total += n
	}
	return float64(total) / elapsed, errors.Join(failed...)
}
