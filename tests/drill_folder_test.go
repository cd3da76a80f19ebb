//go:build drills

package tests

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator/disk"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// loopDisk is an ext4 file system in a file. It needs root.
type loopDisk struct {
	t     *testing.T
	image string
	path  string // where it is mounted
}

func system(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

// mountImage mounts the file system in the file until the test ends.
func mountImage(t *testing.T, image string) *loopDisk {
	t.Helper()
	d := &loopDisk{t, image, t.TempDir()}
	// No commit of its own accord while a drill looks.
	system(t, "mount", "-o", "loop,commit=300", d.image, d.path)
	t.Cleanup(func() { system(t, "umount", d.path) })
	return d
}

func newLoopDisk(t *testing.T) *loopDisk {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	system(t, "mkfs.ext4", "-q", image, "16M")
	return mountImage(t, image)
}

// freeze makes everything hang that writes to the disk, until thaw or the end of the test.
func (d *loopDisk) freeze() (thaw func()) {
	d.t.Helper()
	system(d.t, "fsfreeze", "--freeze", d.path)
	thaw = sync.OnceFunc(func() { system(d.t, "fsfreeze", "--unfreeze", d.path) })
	d.t.Cleanup(thaw)
	return thaw
}

// losePower returns what a power failure at this moment leaves: what was written to the
// device, and not what the system still has in memory.
func (d *loopDisk) losePower() *loopDisk {
	d.t.Helper()
	data, err := os.ReadFile(d.image)
	if err != nil {
		d.t.Fatal(err)
	}
	image := filepath.Join(d.t.TempDir(), "image")
	if err := os.WriteFile(image, data, 0o600); err != nil {
		d.t.Fatal(err)
	}
	return mountImage(d.t, image)
}

// The disk of a generator's data folder hangs; its NATS and the others are well. Tags are
// served all the while, and it stops at SIGTERM.
func TestDrillFrozenDisk(t *testing.T) {
	server := newNATS(t)
	url := server.ClientURL()
	d := newLoopDisk(t)
	g := serve(t, d.path, "-s", url, "--tag", "order:100")
	order := startLoad(t, loadConfig{tag: "order", callers: 2, maxBatch: 1000, mayGiveUp: true, patience: 5 * time.Second}, url)
	flakes := startLoad(t, loadConfig{callers: 1, maxBatch: 1000, mayGiveUp: true, patience: time.Second, expected: []bus.Reason{bus.NoWorkerID, bus.TimedOut}}, url)
	probe := startProbe(t, connect(t, url), bus.SubjectSegment+".order")
	order.more(1000)
	flakes.more(1000)

	thaw := d.freeze()
	frozen := time.Now()
	order.more(1000)
	testkit.Eventually(t, "the log of the disk", func() bool { return strings.Contains(g.stderr.String(), "high-water marks cannot be written") })
	order.more(10_000)
	if n := strings.Count(g.stderr.String(), "high-water marks cannot be written"); n != 1 {
		t.Errorf("that marks cannot be written was logged %d times", n)
	}
	testkit.Eventually(t, "the log of the worker's file", func() bool { return strings.Contains(g.stderr.String(), "the data folder cannot be written") })
	t.Logf("the disk hung for %v, and tags were served", time.Since(frozen).Round(time.Millisecond))
	thaw()
	testkit.Eventually(t, "the end in the log", func() bool {
		return strings.Contains(g.stderr.String(), "high-water marks are written again") && strings.Contains(g.stderr.String(), "the data folder can be written again")
	})
	flakes.more(1000)
	order.more(1000)
	probe.stop()

	thaw = d.freeze()
	order.more(1000)
	g.signal(syscall.SIGTERM)
	signaled := time.Now()
	// The process itself cannot end while the kernel holds one of its threads.
	testkit.Eventually(t, "the end", func() bool { return strings.Contains(g.stderr.String(), "msg=stopped") })
	t.Logf("it stopped %v after SIGTERM, on a disk that hangs", time.Since(signaled).Round(time.Millisecond))
	thaw()
	t.Logf("exit status %d", g.wait(patience))

	g = g.again(t)
	flakes.more(1000)
	order.more(1000)
	order.stop()
	flakes.stop()
	g.stop()
}

// The whole disk of a generator with a NATS server of its own hangs: the stop ends, though the
// server does not.
func TestDrillFrozenServer(t *testing.T) {
	d := newLoopDisk(t)
	g := serve(t, d.path, "--listen", testkit.FreeAddress(t), "--tag", "order:100", "--drain-timeout", "1s")
	order := startLoad(t, loadConfig{tag: "order", callers: 1, maxBatch: 1000, mayGiveUp: true, patience: time.Second, expected: []bus.Reason{bus.StoreUnavailable, bus.TimedOut}}, g.url)
	order.more(1000)
	thaw := d.freeze()
	testkit.Eventually(t, "the log of the worker's file", func() bool { return strings.Contains(g.stderr.String(), "the data folder cannot be written") })
	g.signal(syscall.SIGTERM)
	signaled := time.Now()
	testkit.Eventually(t, "the end", func() bool {
		return strings.Contains(g.stderr.String(), "msg=stopped") || strings.Contains(g.stderr.String(), "the stop hangs")
	})
	t.Logf("it stopped %v after SIGTERM, on a disk that hangs", time.Since(signaled).Round(time.Millisecond))
	thaw()
	t.Logf("exit status %d", g.wait(patience))
	g = g.again(t)
	order.more(1000)
	order.stop()
	g.stop()
}

// A file that was replaced, and the folder that was made for it, are there after a power failure.
func TestDrillPowerFailure(t *testing.T) {
	d := newLoopDisk(t)
	folder := filepath.Join(d.path, "a", "b")
	if err := disk.MakeFolder(folder, 0o750); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(d.losePower().path, "a", "b")); err != nil {
		t.Errorf("the folder: %v", err)
	}
	for _, want := range []string{"old\n", "new\n"} {
		err := disk.Replace(filepath.Join(folder, "installation"), 0o600, func(w io.Writer) error {
			_, err := io.WriteString(w, want)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(d.losePower().path, "a", "b", "installation"))
		if err != nil || string(got) != want {
			t.Errorf("the file has %q, %v; want %q", got, err, want)
		}
	}
}
