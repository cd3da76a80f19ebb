//go:build drills

package tests

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// A generator is killed, one is killed again and again, and then all are.
func TestDrillNightGenerators(t *testing.T) {
	w := newWatch(t, newNATS(t).ClientURL(), threeNodes, "--tag", "order")
	takeOne(t, bus.NewClient(w.nc), "order")
	workers := workersOf(t, bus.NewClient(w.nc), threeNodes...)
	again := func(node string) {
		w.g[node].kill()
		w.g[node] = serve(t, w.g[node].dir, w.args[node]...)
	}
	w.g["gen_2"].kill()
	lost := w.wakes("LeafGeneratorLost").shows("leaf nodes", "gen_2", "lost, last heard")
	event := w.wakes("leaf.node.lost", "gen_2").shows("leaf nodes", "gen_2", "lost").shows("leaf doctor", "problem", "gen_2 is lost")
	down := w.wakes("LeafGeneratorDown", "instance", w.face["gen_2"]).shows("leaf nodes", "gen_2").
		shows("leaf workers", fmt.Sprint(workers["gen_2"]), "gen_2")
	w.board(w.face["gen_1"], `"kind":"leaf.node.lost"`, "gen_2")
	again("gen_2")
	for _, c := range []*call{lost, event, down} {
		c.ends()
	}

	for range 3 {
		again("gen_3")
	}
	restarts := w.wakes("LeafRestarts", "instance", w.face["gen_3"]).shows("leaf events --since 1h", "node.started", "gen_3")
	restarts.ends()

	for _, node := range threeNodes {
		w.g[node].kill()
	}
	none := w.wakes("LeafNoGenerator").shows("leaf nodes", "no generator answers")
	for _, node := range threeNodes {
		w.g[node] = serve(t, w.g[node].dir, w.args[node]...)
	}
	none.ends()
}

// More batches come than two generators can answer. Each ID of an opaque tag costs them processor time.
func TestDrillNightOverload(t *testing.T) {
	w := newWatch(t, newNATS(t).ClientURL(), threeNodes[:2])
	leafOK(t, append([]string{"tag", "add", "coupon", "--opaque"}, w.flags...)...)
	stop, done := make(chan struct{}), make(chan struct{})
	end := sync.OnceFunc(func() { close(stop); <-done })
	t.Cleanup(end)
	go func() {
		defer close(done)
		ticks := time.NewTicker(10 * time.Millisecond)
		defer ticks.Stop()
		inbox := w.nc.NewInbox()
		for {
			for range 100 {
				_ = w.nc.PublishRequest("leaf.segment.coupon", inbox, []byte("1000")) // nobody waits for the answers
			}
			select {
			case <-stop:
				return
			case <-ticks.C:
			}
		}
	}()
	overloaded := w.wakes("LeafOverloaded").shows("leaf nodes", threeNodes[:2]...).says("Start more generators")
	end()
	overloaded.ends()
}

// A generator has as many connections as its limit allows.
func TestDrillNightFiles(t *testing.T) {
	address := testkit.FreeAddress(t)
	dir, face := t.TempDir(), testkit.FreeAddress(t)
	p := command(t, dir, nil, []string{"serve", "--listen", address, "--http", face, "--tag", "order"})
	limited := fmt.Sprintf("ulimit -n 200; exec %s", strings.Join(p.Args, " "))
	p.Path, p.Args = "/bin/sh", []string{"sh", "-c", limited}
	g := ready(t, dir, start(t, p))
	w := &watch{pager: startPager(t, []string{face})}
	w.flags = []string{"-s", g.url}
	var callers []*nats.Conn
	testkit.Eventually(t, "few files that are left", func() bool {
		callers = append(callers, connect(t, g.url))
		var files int
		_, after, _ := strings.Cut(fetch(t, "GET", g.http+"/metrics").body, "\nprocess_open_fds ")
		_, err := fmt.Sscan(after, &files)
		must(t, err)
		return files > 170
	})
	files := w.wakes("LeafFilesRunOut", "instance", face).says("each client of an embedded NATS server is one").prints("leaf nodes", g.node, face)
	for _, nc := range callers {
		nc.Close()
	}
	files.ends()
}

// A generator is cut off while an operator moves a max_id, and returns while the database is dead.
func TestDrillNightCutOff(t *testing.T) {
	l := newLedgered(t)
	w := newWatch(t, l.url, threeNodes[:2], "--mysql", l.dsn, "--tag", "order:1000")
	link := w.behind(l, "gen_3")
	for range 30 {
		granted(t, ask(t, w.nc, "leaf.segment.order", "5"))
	}
	link.nats.Hang(true)
	link.mysql.Hang(true)
	testkit.Eventually(t, "it to be missed", func() bool { return strings.Contains(leafOK(t, "nodes", "-s", l.url), "lost") })
	leafOK(t, "tag", "set", "order", "--max-id", "1000000", "-s", l.url)
	link.nats.Hang(false)
	stale := w.wakes("leaf.node.stale", "gen_3").shows("leaf events --alerts --since 1h", "gen_3", "node.stale")
	stale.does("leaf trace TAG ID", "TAG", "order", "ID", strings.TrimSpace(leafOK(t, "get", "order", "-s", l.url)))
	link.mysql.Hang(false)
	stale.ends()
}

// The disk of one of three embedded NATS servers is full.
func TestDrillNightDisk(t *testing.T) {
	disk := newSmallDisk(t, "16m")
	var urls, routes, faces []string
	for range threeNodes {
		urls, routes, faces = append(urls, testkit.FreeAddress(t)), append(routes, testkit.FreeAddress(t)), append(faces, testkit.FreeAddress(t))
	}
	var processes []*process
	for i, node := range threeNodes {
		dir := t.TempDir()
		if i == 2 {
			dir = disk.dir
		}
		conf := filepath.Join(t.TempDir(), "nats.conf")
		writeFile(t, conf, fmt.Sprintf("server_name: s%d\nlisten: %q\ncluster { name: leaf, listen: %q, routes: [\"nats://%s\"] }\n", i, urls[i], routes[i], strings.Join(routes, `", "nats://`)))
		processes = append(processes, start(t, command(t, dir, nil, []string{"serve", "--nats-config", conf, "--node", node, "--http", faces[i], "--tag", "order", "--events-max-bytes", "2000000"})))
	}
	for i, p := range processes {
		ready(t, p.cmd.Dir, p)
		faces[i] = strings.TrimPrefix(faces[i], "http://")
	}
	w := &watch{pager: startPager(t, faces)}
	w.flags = []string{"-s", "nats://" + urls[0]}
	nc := connect(t, "nats://"+urls[0])
	takeOne(t, bus.NewClient(nc), "order")
	disk.fill()
	rule := w.wakes("LeafNATSDegraded", "instance", faces[2]).shows("leaf nodes", "gen_3: nats: ", "there is no room in the folder", disk.dir)
	event := w.wakes("leaf.nats.degraded", "gen_3").shows("leaf nodes", disk.dir).shows("leaf events --alerts --since 1h", "there is no room in the folder")
	w.board(faces[0], `"kind":"leaf.nats.degraded"`, disk.dir)
	takeOne(t, bus.NewClient(nc), "order")
	disk.free()
	ended := false
	testkit.Eventually(t, "an end, or a healthy server", func() bool {
		select {
		case <-processes[2].exited:
			ended = true
		default:
		}
		return ended || statusOf(faces[2], "/readyz") == 200
	})
	if ended { // a write had failed
		ready(t, disk.dir, start(t, command(t, disk.dir, nil, processes[2].cmd.Args[1:])))
	} else {
		event.ends()
	}
	rule.ends()
	w.board(faces[0], `"lasting":0`)
}
