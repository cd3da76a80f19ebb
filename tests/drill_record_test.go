//go:build drills

package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
)

// ring is three generators whose embedded servers form a cluster. Each can be
// replaced by one with an empty disk.
type ring struct {
	t     *testing.T
	args  [][]string
	dirs  []string
	names []string // of the servers
	urls  []string
	https []string
	nodes []*process
	js    jetstream.JetStream

	mu     sync.Mutex
	joined map[string]string // the installation that a node last said it is of
	all    map[string]bool   // every installation that was ever heard
	runs   map[string]string // the last run that a node was heard as, by its ID
	killed map[string]bool   // the runs that were killed
}

func newRing(t *testing.T, args ...string) *ring {
	const size = 3
	r := &ring{t: t, nodes: make([]*process, size), joined: make(map[string]string), all: make(map[string]bool), runs: make(map[string]string), killed: make(map[string]bool)}
	var routes []string
	for range size {
		routes = append(routes, freeAddress(t))
	}
	for i := range size {
		r.urls = append(r.urls, freeAddress(t))
		r.https = append(r.https, testkit.FreeAddress(t))
		r.names = append(r.names, fmt.Sprint("s", i))
		dir := t.TempDir()
		conf := filepath.Join(dir, "nats.conf")
		text := fmt.Sprintf("server_name: %s\nlisten: %q\ncluster { name: leaf, listen: %q, routes: [%s] }\n",
			r.names[i], strings.TrimPrefix(r.urls[i], "nats://"), strings.TrimPrefix(routes[i], "nats://"), strings.Join(routes, ", "))
		must(t, os.WriteFile(conf, []byte(text), 0o600))
		r.dirs = append(r.dirs, dir)
		r.args = append(r.args, []string{"serve", "--http", r.https[i], "--nats-config", conf, "--tag", "order:200", "--node", nodeOf(i)})
		r.args[i] = append(r.args[i], args...)
	}
	for i := range size {
		r.start(i)
	}
	for i := range size {
		r.awaitReady(i)
	}
	nc := connect(t, r.servers())
	r.js = jetStream(t, nc)
	_, err := nc.Subscribe("leaf.internal.presence", r.heard)
	must(t, err)
	must(t, nc.Flush())
	return r
}

func nodeOf(i int) string { return fmt.Sprint("n", i) }

// servers is where clients connect.
func (r *ring) servers() string { return strings.Join(r.urls, ",") }

// heard notes of which installation a generator says it is.
func (r *ring) heard(msg *nats.Msg) {
	var b struct{ Node, ID, Installation string }
	if json.Unmarshal(msg.Data, &b) != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.killed[b.ID] {
		return // it was on its way when its sender was killed
	}
	r.runs[b.Node] = b.ID
	if b.Installation != "" {
		r.joined[b.Node], r.all[b.Installation] = b.Installation, true
	}
}

func (r *ring) start(i int) {
	r.t.Helper()
	r.nodes[i] = start(r.t, command(r.t, r.dirs[i], nil, r.args[i]))
}

// replace puts a generator with an empty disk in the place of one that is killed.
func (r *ring) replace(i int) {
	r.t.Helper()
	r.nodes[i].kill()
	must(r.t, os.RemoveAll(filepath.Join(r.dirs[i], "leaf-data")))
	r.mu.Lock()
	delete(r.joined, nodeOf(i))
	r.killed[r.runs[nodeOf(i)]] = true
	r.mu.Unlock()
	r.start(i)
}

func (r *ring) ended(i int) bool {
	select {
	case <-r.nodes[i].exited:
		return true
	default:
		return false
	}
}

func (r *ring) isReady(i int) bool {
	resp, err := http.Get("http://" + r.https[i] + "/readyz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == 200
}

func (r *ring) awaitReady(i int) time.Duration {
	r.t.Helper()
	began := time.Now()
	testkit.Eventually(r.t, "readiness", func() bool {
		if r.ended(i) {
			r.t.Fatalf("n%d ended: %s", i, r.nodes[i].stderr.String())
		}
		return r.isReady(i)
	})
	return time.Since(began)
}

// hasJoined reports whether a node said of which installation it is, since it was replaced.
func (r *ring) hasJoined(i int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.joined[nodeOf(i)] != ""
}

// check fails the test if a second installation was heard, or if a generator ended by itself.
func (r *ring) check() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) > 1 {
		r.t.Fatalf("more than one installation was served: %v", r.all)
	}
	for i := range r.nodes {
		if r.ended(i) {
			r.t.Fatalf("n%d ended by itself: %s", i, r.nodes[i].stderr.String())
		}
	}
}

// load takes IDs from the ring until it is stopped.
func (r *ring) load() *load {
	return startLoad(r.t, loadConfig{
		tag: "order", callers: 2, maxBatch: 500, patience: time.Second, mayGiveUp: true,
		expected: []bus.Reason{bus.UnknownTag, bus.StoreUnavailable, bus.StoreRegressed, bus.TimedOut},
	}, r.servers())
}

// streams are those that hold the state.
var streams = []string{"KV_" + bus.BucketInstallation, "KV_" + bus.BucketTags, "KV_" + bus.BucketWorkers, bus.EventStream}

// print prints who leads each stream, how many messages it has, and which replicas lack some.
func (r *ring) print() {
	r.t.Helper()
	var text strings.Builder
	for _, name := range streams {
		info := r.stream(name)
		if info == nil {
			fmt.Fprintf(&text, "%s does not answer; ", name)
			continue
		}
		fmt.Fprintf(&text, "%s: %d", name, info.State.Msgs)
		for _, p := range info.Cluster.Replicas {
			if !p.Current {
				fmt.Fprintf(&text, ", %s lacks %d", p.Name, p.Lag)
			}
		}
		text.WriteString("; ")
	}
	r.t.Log(text.String())
}

// stream describes a stream as its leader sees it; nil: no answer.
func (r *ring) stream(name string) *jetstream.StreamInfo {
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
	defer cancel()
	stream, err := r.js.Stream(ctx, name)
	if err != nil {
		return nil
	}
	return stream.CachedInfo()
}

// saysLost reports whether a newcomer says that the record is lost.
func (r *ring) saysLost(i int) bool {
	return strings.Contains(r.nodes[i].stderr.String(), "JetStream lost the record of installation")
}

// lost waits until a newcomer says that the record is lost, and the others notice it.
func (r *ring) lost(newcomer int) {
	r.t.Helper()
	testkit.Eventually(r.t, "the newcomer to say what is lost", func() bool {
		r.check()
		return r.saysLost(newcomer)
	})
	for i := range r.nodes {
		testkit.Eventually(r.t, "all to be not ready", func() bool {
			r.check()
			return !r.isReady(i)
		})
	}
	if msg := ask(r.t, r.js.Conn(), bus.SubjectTagsCreate, `{"tag":"late"}`); msg.Header.Get("Nats-Service-Error-Code") != "503" {
		r.t.Errorf("a tag was created: %s", msg.Data)
	}
}

// The record of an installation is kept on one server, and that one's disk is
// replaced: JetStream makes the bucket again there, without the record. No generator makes a second one.
func TestDrillRecordOnOneServer(t *testing.T) {
	r := newRing(t, "--replicas", "1")
	holder := slices.Index(r.names, r.stream(streams[0]).Cluster.Leader)
	l := r.load()
	l.more(500)
	r.replace(holder)
	r.lost(holder)
	l.stop()
}

// The nodes of a cluster are replaced by ones with empty disks, one after the other,
// as fast as readiness allows. Nothing is lost.
func TestDrillReplaceWhenReady(t *testing.T) {
	r := newRing(t)
	l := r.load()
	var took []time.Duration
	for i, began := 0, time.Now(); time.Since(began) < time.Minute; i = (i + 1) % len(r.nodes) {
		l.more(100)
		r.replace(i)
		took = append(took, r.awaitReady(i).Round(time.Millisecond))
		r.print()
		r.check()
	}
	t.Logf("ready after %v", took)
	l.stop()
	l.agrees(r.servers())
	for _, name := range streams[:3] {
		if info := r.stream(name); info == nil || info.State.Msgs == 0 {
			t.Errorf("%s is lost: %+v", name, info)
		}
	}
}

// The same without waiting for readiness: each node is replaced when the one before it has
// joined, though it has no copy of the state yet. JetStream then loses the state, or its
// quorum for good. No ID comes twice, and no generator makes a second installation.
func TestDrillReplaceTooFast(t *testing.T) {
	r := newRing(t)
	l := r.load()
	l.more(100)
	for i, began := 0, time.Now(); time.Since(began) < 30*time.Second; i = (i + 1) % len(r.nodes) {
		r.replace(i)
		testkit.Eventually(t, "the newcomer to join, to say what is lost, or to have no quorum", func() bool {
			r.check()
			return r.hasJoined(i) || r.saysLost(i) || r.hasNoQuorum(i)
		})
		if r.hasJoined(i) {
			continue
		}
		if r.saysLost(i) {
			t.Logf("the record was lost when n%d was replaced", i)
			r.lost(i)
		} else {
			t.Logf("JetStream lost its quorum when n%d was replaced", i)
		}
		break
	}
	r.print()
	r.check()
	l.stop()
}

// hasNoQuorum reports whether a node's NATS server says that the bucket of the record lost its
// quorum: a generator cannot join without that bucket.
func (r *ring) hasNoQuorum(i int) bool {
	return strings.Contains(r.nodes[i].stderr.String(), "KV_"+bus.BucketInstallation+"' has NO quorum")
}
