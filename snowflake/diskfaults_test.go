package snowflake_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	realdisk "github.com/leafbus/leafbus/allocator/disk"
	"github.com/leafbus/leafbus/snowflake"
)

// slowDisk is a disk whose writes take some time, or hang while the gate is closed.
type slowDisk struct {
	snowflake.Disk
	mu    sync.Mutex
	takes time.Duration
	gate  chan struct{} // nil: open
}

func (d *slowDisk) wrap(disk snowflake.Disk) snowflake.Disk { d.Disk = disk; return d }

func (d *slowDisk) hang() (open func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gate = make(chan struct{})
	return sync.OnceFunc(func() { close(d.gate) })
}

func (d *slowDisk) slow(takes time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.takes = takes
}

func (d *slowDisk) WriteAt(p []byte, off int64) (int, error) {
	d.mu.Lock()
	gate, takes := d.gate, d.takes
	d.mu.Unlock()
	if gate != nil {
		<-gate
	}
	time.Sleep(takes)
	return d.Disk.WriteAt(p, off)
}

// TestDiskHangs: IDs go on to the ceiling while the disk hangs, and the worker is kept. After 5 s the requests learn
// why there is no ID. Run and Close of generator and file return, though the disk still hangs.
func TestDiskHangs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var d slowDisk
		n := w.start(func(s *setup) { s.bounded, s.wrap = true, d.wrap })
		n.run(10 * time.Second)
		open := d.hang()
		s, _ := n.file.Saved()
		n.run(time.Duration(s.Ceiling-w.clock.right())*ms - ms)
		time.Sleep(8 * time.Second)
		for range 10 {
			if err := n.refused(snowflake.ErrNoWorker); !errors.Is(err, realdisk.ErrHangs) {
				t.Errorf("refused because %v, want %v", err, realdisk.ErrHangs)
			}
			time.Sleep(10 * time.Second)
		}
		if ahead := n.State().ReservedUntil - w.clock.right(); n.Doubtful() || ahead < 60_000 {
			t.Errorf("%d ms are reserved: the worker was not kept; or it is taken for a process that stood still: %v", ahead, n.Doubtful())
		}

		open() // what hung is done before anything newer, and all is well
		time.Sleep(time.Second)
		n.run(10 * time.Second)
		n.wantEvents("acquired 0")

		open = d.hang()
		time.Sleep(time.Second) // amid a write
		begin := time.Now()
		n.end()
		for what, err := range map[string]error{"generator": n.Close(), "file": n.file.Close()} {
			if !errors.Is(err, realdisk.ErrHangs) {
				t.Errorf("Close of the %s: %v, want %v", what, err, realdisk.ErrHangs)
			}
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("the end took %v", took)
		}
		open()
		synctest.Wait()
		w.start(on(n.disk.Kill())).run(10 * time.Second)
	})
}

// TestDiskSlow: the ceiling is raised in time, so that no request waits for the disk.
func TestDiskSlow(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var d slowDisk
		n := w.start(func(s *setup) { s.wrap = d.wrap })
		time.Sleep(time.Second)
		d.slow(500 * ms)
		for range 1000 {
			time.Sleep(10 * ms)
			n.take(0)
		}
	})
}
