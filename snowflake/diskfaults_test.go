package snowflake_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/allocator"
	"github.com/leafbus/leafbus/allocator/allocatortest"
	realdisk "github.com/leafbus/leafbus/allocator/disk"
	"github.com/leafbus/leafbus/snowflake"
	"github.com/leafbus/leafbus/snowflake/snowflaketest"
)

// TestDiskFails: a disk that cannot be written ends the issuing at the ceiling
// that it has, and not for good.
func TestDiskFails(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.start()
		n.run(10 * time.Second)
		ceiling := func() int64 {
			s, _ := n.file.Saved()
			return s.Ceiling
		}
		before := ceiling()
		n.disk.Fail(allocatortest.Seed(t), 1)
		n.run(time.Duration(before-w.clock.right())*ms - ms)
		time.Sleep(ms)
		for range 10 {
			n.refused(snowflake.ErrNoWorker)
			if err := n.State().Err; !errors.Is(err, snowflake.ErrNoWorker) || !errors.Is(err, snowflaketest.ErrDisk) {
				t.Errorf("the state is %v, want %v because %v", err, snowflake.ErrNoWorker, snowflaketest.ErrDisk)
			}
			time.Sleep(time.Second)
		}
		n.disk.Fail(nil, 0)
		time.Sleep(300 * ms)
		n.run(10 * time.Second)
		n.wantEvents("acquired 0")
	})
}

// hanging is a disk whose writes hang while the gate is closed.
type hanging struct {
	snowflake.Disk
	mu   sync.Mutex
	gate chan struct{} // nil: open
}

func (h *hanging) close() (open func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gate = make(chan struct{})
	return sync.OnceFunc(func() { close(h.gate) })
}

func (h *hanging) WriteAt(p []byte, off int64) (int, error) {
	h.mu.Lock()
	gate := h.gate
	h.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return h.Disk.WriteAt(p, off)
}

// TestDiskHangs: nothing waits for a disk that hangs, beyond what every wait
// is bounded by; the state says so, and the worker is kept.
func TestDiskHangs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var h *hanging
		n := w.start(func(s *setup) {
			s.wrap = func(d snowflake.Disk) snowflake.Disk {
				h = &hanging{Disk: d}
				return h
			}
		})
		n.run(10 * time.Second)
		open := h.close()
		t.Cleanup(open) // before that of the generator, which waits for the disk
		s, _ := n.file.Saved()
		n.run(time.Duration(s.Ceiling-w.clock.right())*ms - ms)
		time.Sleep(ms)
		n.wait(t.Context(), n.request(1), snowflake.ErrTimedOut, allocator.DefaultMaxWait)
		for range 10 {
			if err := n.State().Err; !errors.Is(err, snowflake.ErrNoWorker) {
				t.Errorf("the state is %v", err)
			}
			time.Sleep(10 * time.Second)
		}
		if n.Doubtful() {
			t.Error("it is taken for a process that stood still")
		}
		if ahead := n.State().ReservedUntil - w.clock.right(); ahead < 60_000 {
			t.Errorf("%d ms are reserved: the worker was not kept", ahead)
		}
		waiter := n.request(1)
		open()
		n.wait(t.Context(), waiter, nil, 0)
		n.run(10 * time.Second)
		n.wantEvents("acquired 0")
	})
}

// TestDiskHangsBounded: the disk of a real file is waited for 5 s. Then the requests learn
// why there is no ID, and Run and Close of generator and file return, though the disk still hangs.
func TestDiskHangsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var h *hanging
		n := w.start(func(s *setup) {
			s.bounded = true
			s.wrap = func(d snowflake.Disk) snowflake.Disk {
				h = &hanging{Disk: d}
				return h
			}
		})
		n.run(10 * time.Second)
		open := h.close()
		time.Sleep(10 * time.Second)
		for range 10 {
			if err := n.refused(snowflake.ErrNoWorker); !errors.Is(err, realdisk.ErrHangs) {
				t.Errorf("refused because %v, want %v", err, realdisk.ErrHangs)
			}
			time.Sleep(time.Second)
		}

		// It comes back: what hung is done before anything newer, and all is well.
		open()
		time.Sleep(time.Second)
		n.run(10 * time.Second)
		n.wantEvents("acquired 0")

		open = h.close()
		time.Sleep(time.Second) // amid a write
		begin := time.Now()
		n.end()
		if err := n.Close(); !errors.Is(err, realdisk.ErrHangs) {
			t.Errorf("Close of the generator: %v, want %v", err, realdisk.ErrHangs)
		}
		if err := n.file.Close(); !errors.Is(err, realdisk.ErrHangs) {
			t.Errorf("Close of the file: %v, want %v", err, realdisk.ErrHangs)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("the end took %v", took)
		}
		open()
		synctest.Wait()
		w.start(on(n.disk.Kill())).run(10 * time.Second)
	})
}

// TestDiskSlow: the ceiling is raised in time, so that nobody waits for the
// disk.
func TestDiskSlow(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		d := &slowDisk{}
		n := w.start(func(s *setup) {
			s.wrap = func(disk snowflake.Disk) snowflake.Disk {
				d.Disk = disk
				return d
			}
		})
		time.Sleep(time.Second)
		d.takes.Store(int64(500 * ms))
		for range 1000 {
			time.Sleep(10 * ms)
			n.take(0)
		}
	})
}

type slowDisk struct {
	snowflake.Disk
	takes atomic.Int64
}

func (d *slowDisk) WriteAt(p []byte, off int64) (int, error) {
	time.Sleep(time.Duration(d.takes.Load()))
	return d.Disk.WriteAt(p, off)
}
