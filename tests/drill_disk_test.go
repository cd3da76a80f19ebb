//go:build drills

package tests

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// The disk of a generator with a NATS server of its own is full for 12 s under load. When
// there is room again, it ends, and its supervisor starts it.
func TestDrillFullDiskAlone(t *testing.T) {
	disk := newSmallDisk(t, "16m")
	drillFullDisk(t, disk, newEmbedded(t, disk.dir), 12*time.Second)
}

// The disk of one of three generators, whose NATS servers form a cluster, is full for 5 s under
// load. It is ready again only when it is a full member of the cluster: then another one may
// be killed.
func TestDrillFullDiskInCluster(t *testing.T) {
	disk := newSmallDisk(t, "32m")
	drillFullDisk(t, disk, newEmbedded(t, disk.dir, t.TempDir(), t.TempDir()), 5*time.Second)
}

// drillFullDisk fills the disk of the first generator.
func drillFullDisk(t *testing.T, disk *smallDisk, e *embeddedServers, full time.Duration) {
	for i := range e.folders {
		e.run(i)
	}
	for _, face := range e.faces {
		awaitStatus(t, face, "/readyz", http.StatusOK)
	}
	all := strings.Join(e.urls, ",")
	segments := startProbe(t, connect(t, all), bus.SubjectSegment+".order")
	snowflakes := startProbe(t, connect(t, all), bus.SubjectSnowflake)
	var loads []*load
	for _, tag := range []string{"order", ""} {
		loads = append(loads, startLoad(t, loadConfig{
			tag: tag, callers: 2, maxBatch: 1000, patience: time.Second, mayGiveUp: true,
			expected: []bus.Reason{bus.NoWorkerID, bus.StoreUnavailable, bus.TimedOut, bus.Draining},
		}, all))
	}
	more := func() {
		t.Helper()
		for _, l := range loads {
			l.more(1000)
		}
	}
	more()
	began := time.Now()
	disk.fill()
	awaitStatus(t, e.faces[0], "/readyz", http.StatusServiceUnavailable)
	t.Logf("not ready %v after the disk was full", time.Since(began))
	for time.Since(began) < full {
		_ = e.write() // the server with the full disk cannot
	}
	for i, face := range e.faces {
		if alive := statusOf(face, "/healthz"); alive != http.StatusOK {
			t.Errorf("generator %d: /healthz answers %d: a restart on a full disk does not help", i, alive)
		}
		if status := statusOf(face, "/readyz"); i > 0 && status != http.StatusOK {
			t.Errorf("generator %d: /readyz answers %d, its disk is not full", i, status)
		}
	}
	disk.free()
	freed := time.Now()
	if status := e.running[0].wait(patience); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	t.Logf("it ended %v after there was room: %s", time.Since(freed), lastLine(e.running[0].stderr.String()))
	e.run(0)
	awaitStatus(t, e.faces[0], "/readyz", http.StatusOK)
	t.Logf("ready %v after there was room", time.Since(freed))
	if len(e.running) > 1 {
		e.running[1].kill()
	}
	more()
	testkit.Eventually(t, "a write: the servers that are left are a quorum", func() bool { return e.write() == nil })
	segments.stop()
	snowflakes.stop()
	for _, l := range loads {
		l.stop()
	}
}

// embeddedServers are generators with a NATS server each, in a cluster if there are several.
// The test is their supervisor.
type embeddedServers struct {
	t           *testing.T
	folders     []string
	urls, faces []string
	running     []*process
	writer      *bus.Client
	written     int
}

func newEmbedded(t *testing.T, folders ...string) *embeddedServers {
	t.Helper()
	e := &embeddedServers{t: t, folders: folders, running: make([]*process, len(folders))}
	var routes []string
	for range folders {
		routes = append(routes, freeAddress(t))
		e.urls = append(e.urls, freeAddress(t))
		e.faces = append(e.faces, testkit.FreeAddress(t))
	}
	for i, dir := range folders {
		text := fmt.Sprintf("server_name: s%d\nlisten: %q\n", i, strings.TrimPrefix(e.urls[i], "nats://"))
		if len(folders) > 1 {
			text += fmt.Sprintf("cluster { name: leaf, listen: %q, routes: [%s] }\n", strings.TrimPrefix(routes[i], "nats://"), strings.Join(routes, ", "))
		}
		must(t, os.WriteFile(filepath.Join(dir, "nats.conf"), []byte(text), 0o600))
	}
	return e
}

// run starts a generator, or starts it again.
func (e *embeddedServers) run(i int) {
	e.t.Helper()
	e.running[i] = start(e.t, command(e.t, e.folders[i], nil, []string{
		"serve", "--nats-config", "nats.conf", "--http", e.faces[i], "--node", fmt.Sprint("n", i), "--tag", "order:200", "--events-max-bytes", "2000000",
	}))
}

// write makes all servers that keep the tags write.
func (e *embeddedServers) write() error {
	if e.writer == nil {
		e.writer = bus.NewClient(connect(e.t, strings.Join(e.urls, ",")), bus.Timeout(time.Second))
	}
	e.written++
	_, err := e.writer.CreateTag(e.t.Context(), bus.TagCreate{Tag: fmt.Sprint("written.", e.written), Description: strings.Repeat("x", 256)})
	return err
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
