//go:build drills

package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
)

// A generator is frozen, its data folder is started elsewhere, and it thaws: no
// snowflake comes twice. Root must run this: it mounts file systems.
func TestDrillThawBesideCopy(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) (folder string, elsewhere func() string){
		// The inodes are the same as on the fresh file system before.
		"files copied to a fresh file system": func(t *testing.T) (string, func() string) {
			from := mount(t, "-t", "tmpfs", "-o", "size=16m", "tmpfs")
			return from, func() string {
				to := mount(t, "-t", "tmpfs", "-o", "size=16m", "tmpfs")
				run(t, "cp", "-a", from+"/.", to)
				return to
			}
		},
		// Inode and birth time are the same, as on a volume that is attached to another machine.
		"image of the volume": func(t *testing.T) (string, func() string) {
			images := t.TempDir()
			first, second := filepath.Join(images, "1"), filepath.Join(images, "2")
			run(t, "truncate", "-s", "16M", first)
			run(t, "mkfs.ext4", "-q", first)
			from := mount(t, "-o", "loop", first)
			return from, func() string {
				run(t, "sync", "-f", from)
				run(t, "cp", first, second)
				return mount(t, "-o", "loop", second)
			}
		},
	} {
		for _, pause := range []time.Duration{1200 * time.Millisecond, 3 * time.Second, 6 * time.Second, 9 * time.Second} {
			t.Run(fmt.Sprintf("%s, %v", name, pause), func(t *testing.T) {
				folder, elsewhere := start(t)
				url := newNATS(t).ClientURL()
				original := serve(t, folder, "-s", url)
				probe := startProbe(t, connect(t, url), bus.SubjectSnowflake)
				l := startLoad(t, loadConfig{
					callers: 2, maxBatch: 4000, patience: time.Second, mayGiveUp: true, expected: []bus.Reason{bus.NoWorkerID},
				}, url)
				l.more(300)
				thaw := time.After(pause)
				original.freeze()
				other := serve(t, elsewhere(), "-s", url)
				patient(t, url, l, thaw, func() { original.signal(syscall.SIGCONT) })
				l.more(2000)
				probe.stop()
				l.stop()
				if log := original.stderr.String(); !strings.Contains(log, "stood still") && !strings.Contains(log, "the worker is lost") {
					t.Errorf("the original does not say that it stood still; the other is %s", other.node)
				}
			})
		}
	}
}

// patient sends requests until some time after the thaw, and waits for their
// answers for as long as it takes: half of them wait in the connection of the frozen
// generator. Their IDs belong to the load.
func patient(t *testing.T, url string, l *load, due <-chan time.Time, thaw func()) {
	t.Helper()
	const requests = 1000 // half of them after the thaw
	nc := connect(t, url)
	inbox := nc.NewInbox()
	answered := make(chan struct{}, requests)
	if _, err := nc.Subscribe(inbox, func(msg *nats.Msg) {
		if ranges, err := bus.ParseReply(msg.Data); err == nil {
			l.record(ranges, 0)
		}
		answered <- struct{}{}
	}); err != nil {
		t.Fatal(err)
	}
	ask := func() {
		if err := nc.PublishRequest(bus.SubjectSnowflake, inbox, []byte("400")); err != nil {
			t.Error(err)
		}
	}
	<-due
	for range requests / 2 {
		ask()
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	thaw()
	for range requests / 2 {
		ask()
		time.Sleep(time.Millisecond) // so that some come at each moment of the thaw
	}
	patience := time.After(patience)
	for range requests {
		select {
		case <-answered:
		case <-patience:
			t.Fatal("requests are not answered")
		}
	}
}

// mount mounts a file system until the test ends, and returns where.
func mount(t *testing.T, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	run(t, "mount", append(args, dir)...)
	t.Cleanup(func() { run(t, "umount", dir) })
	folder := filepath.Join(dir, "work")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	return folder
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}
