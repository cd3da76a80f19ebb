package disk_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator/disk"
)

func TestRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := disk.NewRunner(time.Second)
		begin := time.Now()
		want := func(err, want error, after time.Duration) {
			t.Helper()
			if took := time.Since(begin); !errors.Is(err, want) || took != after {
				t.Errorf("%v after %v, want %v after %v", err, took, want, after)
			}
		}
		failure := errors.New("injected")
		for _, err := range []error{nil, failure} {
			want(r.Run(func() error { return err }), err, 0)
		}

		// One at a time: of three that take 400 ms each the third is not done in time.
		var callers sync.WaitGroup
		var mu sync.Mutex
		running, done, late := 0, 0, 0
		for range 3 {
			callers.Go(func() {
				err := r.Run(func() error {
					mu.Lock()
					running++
					if running > 1 {
						t.Error("two operations at a time")
					}
					mu.Unlock()
					time.Sleep(400 * time.Millisecond)
					mu.Lock()
					running--
					done++
					mu.Unlock()
					return nil
				})
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, disk.ErrHangs) {
					late++
				}
			})
		}
		callers.Wait()
		want(nil, nil, time.Second)
		if done != 2 || late != 1 {
			t.Errorf("%d operations were done in time and %d not, want 2 and 1", done, late)
		}
		time.Sleep(time.Second)

		// One that hangs is waited for once, and nothing is begun until it is over.
		begin = time.Now()
		gate := make(chan struct{})
		want(r.Run(func() error { <-gate; return nil }), disk.ErrHangs, time.Second)
		for range 3 {
			want(r.Run(func() error { t.Error("begun beside one that hangs"); return nil }), disk.ErrHangs, time.Second)
		}
		close(gate)
		synctest.Wait()
		want(r.Run(func() error { return failure }), failure, time.Second)
	})
}
