//go:build drills

package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/zookeeper"
)

// collect asks all generators, and returns what they answer within 300 ms.
func collect[T any](t *testing.T, nc *nats.Conn, subject, body string, generators int) (found []T) {
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err == nil {
		defer answers.Unsubscribe()
		err = nc.PublishRequest(subject, inbox, []byte(body))
	}
	if err != nil {
		t.Errorf("%s: %v", subject, err)
		return nil
	}
	for until := time.Now().Add(300 * time.Millisecond); len(found) < generators; {
		msg, err := answers.NextMsg(time.Until(until))
		if err != nil {
			return found
		}
		var v T
		if err := json.Unmarshal(msg.Data, &v); err == nil {
			found = append(found, v)
		}
	}
	return found
}

// having returns the generators with so many IDs of a tag whose name begins so.
func having(t *testing.T, nc *nats.Conn, prefix string, ids int64, generators int) (nodes []string) {
	for _, page := range collect[bus.BuffersPage](t, nc, bus.SubjectBuffers, `{"prefix":"`+prefix+`","limit":1000}`, generators) {
		if slices.ContainsFunc(page.Buffers, func(b bus.Buffer) bool { return b.Left >= ids }) {
			nodes = append(nodes, page.Node)
		}
	}
	return nodes
}

// outsiders returns the generators that have IDs, and are not in the queue group of tags.
func outsiders(t *testing.T, nc *nats.Conn, generators int) (nodes []string) {
	before := having(t, nc, "", 1, generators)
	var inside []string
	for _, p := range collect[micro.Ping](t, nc, "$SRV.PING.leaf-segment", "", generators) {
		inside = append(inside, p.Metadata["node"])
	}
	for _, node := range having(t, nc, "", 1, generators) {
		if slices.Contains(before, node) && !slices.Contains(inside, node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// The database is away for at least three times as long as the memory of a busy tag lasts. There are thirty tags with uneven
// load. While one generator has enough IDs, no call fails, and no generator with IDs leaves the queue group.
func TestDrillCallersDry(t *testing.T) {
	for _, generators := range []int{2, 3} {
		t.Run(fmt.Sprint(generators), func(t *testing.T) {
			db, dsn := newServer(t)
			url := newNATS(t).ClientURL()
			var tags, flags, faces []string
			for i := range 30 {
				tags = append(tags, fmt.Sprintf("t%02d", i))
				flags = append(flags, "--tag", tags[i]+":500")
			}
			flags = append(flags, "-s", url, "--mysql", dsn, "--max-step", "500", "--http", "127.0.0.1:0")
			for i := range generators {
				g := serve(t, t.TempDir(), append(slices.Clone(flags), "--node", fmt.Sprint("n", i))...)
				awaitStatus(t, strings.TrimPrefix(g.http, "http://"), "/readyz", http.StatusOK)
				faces = append(faces, g.http)
			}
			var away atomic.Bool
			nc := connect(t, url)
			calls := newCallers(t, tags...)
			calls.unjust = func(tag string) bool {
				return away.Load() && len(having(t, nc, tag, callersBatch, generators)) > 0 && away.Load()
			}
			calls.ask("", url)
			calls.askHTTP(faces...)
			left := make(map[string]int) // how often a generator was found outside
			calls.attack(time.Second, func() {
				must(t, db.Kill())
				away.Store(true)
				for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(500 * time.Millisecond) {
					for _, node := range outsiders(t, nc, generators) {
						left[node]++
					}
				}
			}, func() {
				away.Store(false)
				must(t, db.Run())
			})
			if len(left) > 0 {
				t.Errorf("generators with IDs were outside of the queue group, so often within 30 s: %v", left)
			}
			calls.stop(calm{just: true})
		})
	}
}

// One of two generators loses its worker because it has no ZooKeeper, beside another one that has a worker.
func TestDrillCallersNoWorker(t *testing.T) {
	p := newPlace(t, zookeeper.Hosts(t))
	behind, way := p.behind(t)
	url := newNATS(t).ClientURL()
	var faces []string
	for i, place := range []*place{behind, p} {
		g := place.joins(t, url, fmt.Sprint("n", i), "--worker-reserve", "4s", "--tag", "order:20000", "--http", "127.0.0.1:0")
		awaitStatus(t, strings.TrimPrefix(g.http, "http://"), "/readyz", http.StatusOK)
		faces = append(faces, g.http)
	}
	calls := newCallers(t, "order")
	calls.ask("", url)
	calls.askHTTP(faces...)
	calls.attack(15*time.Second, func() { way.Refuse(true) }, func() { way.Refuse(false) })
	calls.stop(calm{none: true, noneHTTP: true})
}
