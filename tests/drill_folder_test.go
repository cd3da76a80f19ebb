//go:build drills

package tests

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/leafbus/leafbus/allocator/disk"
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
