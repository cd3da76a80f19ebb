//go:build drills

package tests

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
)

// smallDisk is a disk of a few MiB that can be filled up.
type smallDisk struct {
	t      *testing.T
	dir    string
	filler string // the file that takes the room

	stop chan struct{} // closed when the disk must be free
	done sync.WaitGroup
}

// newSmallDisk mounts a disk in memory until the test ends.
func newSmallDisk(t *testing.T, size string) *smallDisk {
	t.Helper()
	d := &smallDisk{t: t, dir: t.TempDir()}
	d.filler = filepath.Join(d.dir, "filler")
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", d.dir).CombinedOutput(); err != nil {
		t.Fatalf("this test needs the right to mount a disk in memory: run it as root on Linux, in a container with CAP_SYS_ADMIN (%v: %s)", err, out)
	}
	t.Cleanup(func() {
		d.free()
		// A process that was killed may hold the disk for a moment.
		if out, err := exec.Command("umount", "--lazy", d.dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return d
}

// fill takes all room and keeps it full until free is called: what others delete is taken, too.
func (d *smallDisk) fill() {
	d.t.Helper()
	f, err := os.OpenFile(d.filler, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	must(d.t, err)
	must(d.t, takeRoom(f))
	d.stop = make(chan struct{})
	d.done.Go(func() {
		defer f.Close()
		again := time.NewTicker(time.Millisecond)
		defer again.Stop()
		for {
			select {
			case <-d.stop:
				return
			case <-again.C:
				if err := takeRoom(f); err != nil {
					d.t.Errorf("filling the disk: %v", err)
					return
				}
			}
		}
	})
}

// takeRoom appends to f until nothing fits any more.
func takeRoom(f *os.File) error {
	block := make([]byte, 1<<16)
	for {
		switch _, err := f.Write(block); {
		case err == nil:
		case !errors.Is(err, syscall.ENOSPC):
			return err
		case len(block) == 1:
			return nil
		default:
			block = block[:len(block)/16]
		}
	}
}

// free gives all room back.
func (d *smallDisk) free() {
	d.t.Helper()
	if d.stop == nil {
		return
	}
	close(d.stop)
	d.done.Wait()
	d.stop = nil
	must(d.t, os.Remove(d.filler))
}

// awaitStatus waits until a generator's HTTP face answers a path with a status.
func awaitStatus(t *testing.T, face, path string, want int) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("%d from %s", want, path), func() bool { return statusOf(face, path) == want })
}

// statusOf asks a generator that may not be there; then the status is 0.
func statusOf(face, path string) int {
	answer, err := http.Get("http://" + face + path)
	if err != nil {
		return 0
	}
	answer.Body.Close()
	return answer.StatusCode
}
