package snowflake_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// TestRegistryRefuses: a registry that refuses the generator ends it, unless it
// has had a worker.
func TestRegistryRefuses(t *testing.T) {
	for _, call := range []string{"List", "Add", "Put"} {
		for _, known := range []bool{false, true} {
			if known && call == "Add" {
				continue
			}
			t.Run(fmt.Sprintf("%s, known %v", call, known), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					d := snowflaketest.NewDisk()
					if known {
						n := w.start()
						n.run(10 * time.Second)
						d = n.stop()
					} else if call == "Put" {
						w.start(as("b")).kill()
						time.Sleep(time.Hour)
					}
					n := w.start(on(d), func(s *setup) {
						s.Registry = refusing{s.Registry, call, func() bool { return true }}
					})
					n.stopped("somebody must look")
					n.wantEvents()
				})
			})
		}
	}
	t.Run("requests that wait are refused", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			n := w.start(func(s *setup) {
				s.slow = time.Second
				s.Registry = refusing{s.Registry, "List", func() bool { return true }}
			})
			n.wait(t.Context(), n.request(1), snowflake.ErrRefused, time.Second)
			n.stopped()
		})
	})
	t.Run("later, when it has had a worker", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			var refuses atomic.Bool
			n := w.start(func(s *setup) { s.Registry = refusing{s.Registry, "", refuses.Load} })
			n.run(10 * time.Second)
			refuses.Store(true)
			n.run(50 * time.Second)
			n.wantEvents("acquired 0", "expiring 0")
			time.Sleep(time.Minute)
			n.refused(snowflake.ErrNoWorker)
			w.memory.Wipe()
			time.Sleep(time.Minute)
			n.refused(snowflake.ErrNoWorker)
			refuses.Store(false)
			time.Sleep(3 * time.Second)
			n.take(0)
		})
	})
}

// refusing is a registry that refuses a call, or, if that is "", all, while
// when says so.
type refusing struct {
	snowflake.Registry
	call string
	when func() bool
}

func (r refusing) check(call string) error {
	if (r.call == "" || r.call == call) && r.when() {
		return fmt.Errorf("%w: somebody must look", snowflake.ErrRefused)
	}
	return nil
}

func (r refusing) List(ctx context.Context) ([]snowflake.Entry, error) {
	entries, err := r.Registry.List(ctx)
	return entries, errors.Join(err, r.check("List"))
}

func (r refusing) Add(ctx context.Context, record snowflake.Record, c snowflake.Choice) (snowflake.Entry, error) {
	if err := r.check("Add"); err != nil {
		return snowflake.Entry{}, err
	}
	return r.Registry.Add(ctx, record, c)
}

func (r refusing) Put(ctx context.Context, record snowflake.Record, version uint64) (uint64, error) {
	if err := r.check("Put"); err != nil {
		return 0, err
	}
	return r.Registry.Put(ctx, record, version)
}
