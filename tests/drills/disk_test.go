//go:build drills

package drills

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator/disk"
	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// smallDisk is a file system of a few MiB in memory that can be filled up.
type smallDisk struct {
	t      *testing.T
	dir    string
	filler string        // the file that takes the room
	stop   chan struct{} // closed when the disk must be free; nil: it is
	done   sync.WaitGroup
}

func newSmallDisk(t *testing.T, size string) *smallDisk {
	t.Helper()
	d := &smallDisk{t: t, dir: t.TempDir()}
	d.filler = filepath.Join(d.dir, "filler")
	system(t, "mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", d.dir)
	t.Cleanup(func() {
		d.free()
		system(t, "umount", "--lazy", d.dir) // a process that was killed may hold the disk for a moment
	})
	return d
}

// fill takes all room and keeps the disk full until free: what others delete is taken, too.
func (d *smallDisk) fill() {
	d.t.Helper()
	f, err := os.OpenFile(d.filler, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	kit.Must(d.t, err)
	kit.Must(d.t, takeRoom(f))
	stop := make(chan struct{})
	d.stop = stop
	d.done.Go(func() {
		defer f.Close()
		again := time.NewTicker(time.Millisecond)
		defer again.Stop()
		for {
			select {
			case <-stop:
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
	for block := make([]byte, 1<<16); ; {
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
	if d.stop == nil {
		return
	}
	close(d.stop)
	d.done.Wait()
	d.stop = nil
	kit.Must(d.t, os.Remove(d.filler))
}

// loopDisk is an ext4 file system in a file.
type loopDisk struct {
	t           *testing.T
	image, path string // path is where it is mounted
}

func newLoopDisk(t *testing.T) *loopDisk {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	system(t, "mkfs.ext4", "-q", image, "16M")
	return mountImage(t, image)
}

// mountImage mounts the file system in a file until the test ends.
func mountImage(t *testing.T, image string) *loopDisk {
	t.Helper()
	d := &loopDisk{t, image, t.TempDir()}
	system(t, "mount", "-o", "loop,commit=300", d.image, d.path) // no commit by itself meanwhile
	t.Cleanup(func() { system(t, "umount", d.path) })
	return d
}

// copied returns the file system that a copy of the device gives at this moment: after a power failure, or on another
// machine.
func (d *loopDisk) copied() *loopDisk {
	d.t.Helper()
	image := filepath.Join(d.t.TempDir(), "image")
	system(d.t, "cp", d.image, image)
	return mountImage(d.t, image)
}

// The disk of a generator with an embedded server is full. The generator says so and is not ready. It is alive, because
// a restart does not help. When there is room again, it ends, so that its supervisor starts it; what it had confirmed
// is there.
func TestDrillFullDisk(t *testing.T) {
	d := newSmallDisk(t, "16m")
	args := []string{"--http", testkit.FreeAddress(t), "--tag", "order:200", "--events-max-bytes", "2000000"}
	g := kit.Serve(t, d.dir, append(args, "--listen", testkit.FreeAddress(t))...)
	events, err := kit.Connect(t, g.URL).SubscribeSync("leaf.events.*.nats.>")
	kit.Must(t, err)
	before := callers.New(t, callers.Config{Tags: []string{"order"}, Batch: 1000, MayFail: callers.AnyFailure}).Take(g.URL)
	before.More(100)
	d.fill()
	awaitStatus(t, g.HTTP, "/readyz", http.StatusServiceUnavailable)
	alert, err := events.NextMsg(kit.Patience)
	kit.Must(t, err)
	if alert.Subject != "leaf.events.alert.nats.degraded."+g.Node || !strings.Contains(string(alert.Data), "there is no room") {
		t.Errorf("%s %s", alert.Subject, alert.Data)
	}
	var confirmed []string
	testkit.Eventually(t, "a write that fails", func() bool {
		tag := fmt.Sprint("written.", len(confirmed))
		if r := kit.Leaf(t, "tag", "add", tag, "--description", strings.Repeat("x", 200), "-s", g.URL); r.Status != 0 {
			return true
		}
		confirmed = append(confirmed, tag)
		return false
	})
	if status := status(g.HTTP, "/healthz"); status != http.StatusOK {
		t.Errorf("/healthz answers %d: a restart on a full disk does not help", status)
	}
	before.Stop()
	d.free()
	if code, err := g.Wait(); err != nil || code != 1 || !strings.Contains(g.Stderr(), "supervisor") {
		t.Errorf("exit status %d, %v: %s", code, err, g.Stderr())
	}
	g = g.Again()
	awaitStatus(t, g.HTTP, "/readyz", http.StatusOK)
	after := callers.New(t, callers.Config{Tags: []string{"order"}, Batch: 1000}).Take(g.URL)
	after.Floor("order", before.Highest("order")+1)
	after.More(100)
	after.Stop()
	unique(t, "order", before, after)
	for _, tag := range confirmed {
		kit.LeafOK(t, "tag", "show", tag, "-s", g.URL)
	}
}

// A start on a full disk fails with one sentence that names the folder. When there is room, the same command works and
// the node is the same.
func TestDrillStartOnFullDisk(t *testing.T) {
	url := natskit.Start(t).ClientURL()
	for name, args := range map[string][]string{
		"embedded": {"--listen", "127.0.0.1:0"},
		"joined":   {"-s", url, "--node", "yours"},
	} {
		for _, used := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, used before %v", name, used), func(t *testing.T) {
				d := newSmallDisk(t, "16m")
				node := ""
				if used {
					g := kit.Serve(t, d.dir, args...)
					node = g.Node
					kit.Must(t, g.Stop())
				}
				d.fill()
				serve := append([]string{"serve", "--http", ""}, args...)
				r := kit.Finish(t, kit.Start(t, kit.Command(t, d.dir, nil, serve...)))
				r.Want(t, 1, "there is no room in the folder "+filepath.Join(d.dir, "leaf-data"))
				if r.Stdout != "" || strings.Count(strings.TrimSpace(r.Stderr), "\n") > 0 {
					t.Errorf("more than a sentence: %+v", r)
				}
				d.free()
				if g := kit.Serve(t, d.dir, args...); used && g.Node != node {
					t.Errorf("it is %s, and was %s", g.Node, node)
				}
			})
		}
	}
}

// A file that was replaced, and the folder that was made for it, are there after a power failure.
func TestDrillPowerFailure(t *testing.T) {
	d := newLoopDisk(t)
	folder := filepath.Join(d.path, "a", "b")
	kit.Must(t, disk.MakeFolder(folder, 0o750))
	for _, want := range []string{"old\n", "new\n"} {
		kit.Must(t, disk.Replace(filepath.Join(folder, "installation"), 0o600, func(w io.Writer) error {
			_, err := io.WriteString(w, want)
			return err
		}))
		got, err := os.ReadFile(filepath.Join(d.copied().path, "a", "b", "installation"))
		if err != nil || string(got) != want {
			t.Errorf("the file has %q, %v; want %q", got, err, want)
		}
	}
}

// A generator is frozen, an image of its volume is started elsewhere, and it thaws: no snowflake comes twice. Chaos
// copies folders, which then have other inodes.
func TestDrillThawBesideImage(t *testing.T) {
	for _, pause := range []time.Duration{1200 * time.Millisecond, 6 * time.Second} {
		t.Run(pause.String(), func(t *testing.T) {
			url := natskit.Start(t).ClientURL()
			d := newLoopDisk(t)
			original := kit.Serve(t, d.path, "-s", url)
			set := callers.New(t, callers.Config{Batch: 4000, Deadline: time.Second, MayFail: callers.AnyFailure}).Raw(url).Take(url)
			set.More(300)
			thaw := time.After(pause)
			kit.Must(t, original.Freeze())
			system(t, "sync", "-f", d.path)
			kit.Serve(t, d.copied().path, "-s", url)
			<-thaw
			kit.Must(t, original.Thaw())
			set.More(1000)
			testkit.Eventually(t, "the original says that it stood still", func() bool {
				log := original.Stderr()
				return strings.Contains(log, "stood still") || strings.Contains(log, "the worker is lost")
			})
			set.More(300)
			set.Stop()
		})
	}
}
