//go:build drills

package tests

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// The disk of a generator with a NATS server of its own is full until a write fails: JetStream
// takes none any more. That is seen, and when there is room again the generator ends, so that
// its supervisor brings JetStream back; what it had acknowledged is still there.
func TestDrillFullDisk(t *testing.T) {
	t.Parallel()
	disk := newSmallDisk(t, "16m")
	face := testkit.FreeAddress(t)
	args := []string{"--http", face, "--tag", "order:200", "--events-max-bytes", "2000000"}
	g := serve(t, disk.dir, append(args, "--listen", testkit.FreeAddress(t))...)
	nc := connect(t, g.url)
	c := bus.NewClient(nc, bus.Timeout(time.Second))
	events, err := nc.SubscribeSync("leaf.events.*.nats.>")
	must(t, err)
	before := startLoad(t, loadConfig{tag: "order", callers: 2, maxBatch: 1000, total: 20_000}, g.url)
	before.stop()

	disk.fill()
	awaitStatus(t, face, "/readyz", http.StatusServiceUnavailable)
	alert, err := events.NextMsg(patience)
	must(t, err)
	if want := "leaf.events.alert.nats.degraded." + g.node; alert.Subject != want || !strings.Contains(string(alert.Data), `"cause":"there is no room in the folder `) {
		t.Errorf("%s %s, want %s", alert.Subject, alert.Data, want)
	}
	var acknowledged []string
	tries := 0
	testkit.Eventually(t, "a write that fails", func() bool {
		tag := fmt.Sprint("written.", tries)
		tries++
		if _, err := c.CreateTag(t.Context(), bus.TagCreate{Tag: tag, Description: strings.Repeat("x", 256)}); err == nil {
			acknowledged = append(acknowledged, tag)
			return false
		}
		// An answer that was only late is no failed write.
		return strings.Contains(states(t, c, 1)[0].Reasons["nats"], "JetStream")
	})
	if r := states(t, c, 1)[0].Readiness; r.Ready || !slices.Contains(r.Missing, "nats") || r.Reasons["nats"] == "" {
		t.Errorf("over the bus: %+v", r)
	}
	if r := leaf(t, "nodes", "-s", g.url); !strings.Contains(r.stdout, "nats") || !strings.Contains(r.stderr, "nats: ") {
		t.Errorf("leaf nodes: %+v", r)
	}
	if page := fetch(t, "GET", g.http+"/metrics"); !strings.Contains(page.body, `leaf_missing{what="nats"} 1`) {
		t.Error("the metrics do not show it")
	}
	leafOK(t, "health", "--http", face) // a restart on a full disk would not help
	granted(t, ask(t, nc, bus.SubjectSnowflake, ""))

	disk.free()
	if status := g.wait(patience); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	for _, want := range []string{"this process ends so that its supervisor starts it again", "no space left on device", "only a restart"} {
		if !strings.Contains(g.stderr.String(), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	again := g.again(t, args...)
	awaitStatus(t, face, "/readyz", http.StatusOK)
	startLoad(t, loadConfig{tag: "order", callers: 2, maxBatch: 1000, total: 20_000, each: func(r bus.Range) {
		if highest := before.highest.Load(); r.First <= highest {
			t.Errorf("%v was handed out after %d had been", r, highest)
		}
	}}, again.url).stop()
	c = client(t, again.url)
	for _, tag := range acknowledged {
		if _, err := c.Tag(t.Context(), tag); err != nil {
			t.Errorf("%s was acknowledged and is lost: %v", tag, err)
		}
	}
}

// A start on a full disk fails with one sentence that names the folder, before anything else is
// done; when there is room, the same command works.
func TestDrillStartOnFullDisk(t *testing.T) {
	t.Parallel()
	nats := newNATS(t)
	for name, args := range map[string][]string{
		"embedded":            {"--listen", "127.0.0.1:0"},
		"embedded, a name":    {"--listen", "127.0.0.1:0", "--node", "mine"},
		"joined":              {"-s", nats.ClientURL()},
		"joined, with a name": {"-s", nats.ClientURL(), "--node", "yours"},
	} {
		for _, used := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, used before %v", name, used), func(t *testing.T) {
				t.Parallel()
				disk := newSmallDisk(t, "16m")
				node := ""
				if used {
					g := serve(t, disk.dir, args...)
					node = g.node
					g.stop()
				}
				disk.fill()
				r := runLeaf(t, command(t, disk.dir, nil, append([]string{"serve", "--http", ""}, args...)))
				r.want(t, 1, "there is no room in the folder "+filepath.Join(disk.dir, "leaf-data")+": free at least 1 MiB")
				if r.stdout != "" || strings.Count(strings.TrimSpace(r.stderr), "\n") > 0 {
					t.Errorf("more than a sentence: %+v", r)
				}
				disk.free()
				if g := serve(t, disk.dir, args...); used && g.node != node {
					t.Errorf("it is %s, and was %s", g.node, node)
				}
			})
		}
	}
}

// The store may be on a disk of its own.
func TestDrillStartOnFullStore(t *testing.T) {
	t.Parallel()
	disk := newSmallDisk(t, "16m")
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "leaf-data"), 0o750))
	must(t, os.Symlink(disk.dir, filepath.Join(dir, "leaf-data", "nats")))
	disk.fill()
	r := runLeaf(t, command(t, dir, nil, []string{"serve", "--http", "", "--listen", "127.0.0.1:0"}))
	r.want(t, 1, "there is no room in the folder "+filepath.Join(dir, "leaf-data", "nats")+": free at least 1 MiB")
	disk.free()
	serve(t, dir, "--listen", "127.0.0.1:0")
}
