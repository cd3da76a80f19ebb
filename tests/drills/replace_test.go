//go:build drills

package drills

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// buckets hold the state of an installation.
var buckets = []string{"KV_LEAF", "KV_LEAF_TAGS", "KV_LEAF_WORKERS"}

// load takes IDs of a cluster. All calls may fail, and no ID may come twice.
func (c *cluster) load() *callers.Callers {
	c.t.Helper()
	cfg := callers.Config{Tags: []string{"order"}, Batch: 500, Deadline: time.Second, MayFail: func(callers.Call) bool { return true }}
	return callers.New(c.t, cfg).Take(c.urls()).Raw(c.urls())
}

// redundant waits until leaf nodes says that any one machine may stop.
func (c *cluster) redundant() {
	c.t.Helper()
	began := time.Now()
	testkit.Eventually(c.t, "any one machine may stop", func() bool {
		return kit.Leaf(c.t, "nodes", "--wait-redundant", "--wait", "30s", "-s", c.urls()).Status == 0
	})
	c.t.Logf("redundant after %v", time.Since(began).Round(time.Millisecond))
	for i := range c.nodes {
		if !c.ready(i) {
			c.t.Errorf("n%d is not ready", i)
		}
	}
}

// The machines are replaced by ones with empty disks, one after the other. Each goes when leaf nodes --wait-redundant allows it.
// Nothing is lost.
func TestDrillReplaceWhenRedundant(t *testing.T) {
	c := newCluster(t, "")
	set := c.load()
	for i := range 6 {
		set.More(100)
		c.redundant()
		c.replace(i % 3)
	}
	c.redundant()
	set.More(100)
	set.Stop()
	auditAgrees(t, c.urls(), "order", set)
	for _, name := range buckets {
		if info := stream(t, c.nc, name); info == nil || info.State.Msgs == 0 {
			t.Errorf("%s is lost: %+v", name, info)
		}
	}
}

// While a machine is away, the command waits and says what is missing.
func TestDrillWaitRedundant(t *testing.T) {
	c := newCluster(t, "")
	c.redundant()
	c.kill(0)
	r := kit.Leaf(t, "nodes", "--wait-redundant", "--wait", "4s", "--json", "-s", c.urls())
	if r.Status != 1 || !strings.Contains(r.Stdout, `{"redundant":false,"missing":[{"what":`) {
		t.Errorf("after 4 s: %+v", r)
	}
	c.start(0)
	c.redundant()
}

// installations collects the installations that generators say they belong to.
func (c *cluster) installations() func() []string {
	c.t.Helper()
	var mu sync.Mutex
	heard := make(map[string]bool)
	_, err := c.nc.Subscribe("leaf.internal.presence", func(msg *nats.Msg) {
		var b struct{ Installation string }
		if json.Unmarshal(msg.Data, &b) == nil && b.Installation != "" {
			mu.Lock()
			defer mu.Unlock()
			heard[b.Installation] = true
		}
	})
	kit.Must(c.t, err)
	kit.Must(c.t, c.nc.Flush())
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Sorted(maps.Keys(heard))
	}
}

func (c *cluster) joined(i int) bool { return strings.Contains(c.nodes[i].Stdout(), "leaf ready") }

// Each machine is replaced when the one before it has joined, and may not have a copy of the state yet. JetStream loses the state,
// or its quorum. No ID comes twice, and no generator makes a second installation.
func TestDrillReplaceTooFast(t *testing.T) {
	c := newCluster(t, "")
	installations := c.installations()
	set := c.load()
	set.More(100)
	for i := range c.nodes {
		c.replace(i)
		log := func(text string) bool { return strings.Contains(c.nodes[i].Stderr(), text) }
		testkit.Eventually(t, "the newcomer joins, or says what is lost", func() bool {
			return c.joined(i) || log("JetStream lost the record of installation") || log("has NO quorum")
		})
		if !c.joined(i) {
			t.Logf("the state is lost since n%d was replaced", i)
			break // with the last one that knows the ranges, IDs would be lost for good
		}
	}
	time.Sleep(20 * time.Second)
	set.Stop()
	if heard := installations(); len(heard) != 1 {
		t.Errorf("these installations were served: %v", heard)
	}
}

// The record of the installation is kept on one server, and that one's disk is replaced: no generator makes another record, all say
// that it is lost and are not ready, and none repeats an ID.
func TestDrillRecordOnOneServer(t *testing.T) {
	c := newCluster(t, "", "--replicas", "1")
	holder := leader(t, c.nc, "KV_LEAF")
	set := c.load()
	set.More(200)
	c.replace(holder)
	testkit.Eventually(t, "the newcomer says what is lost", func() bool {
		return strings.Contains(c.nodes[holder].Stderr(), "JetStream lost the record of installation")
	})
	for i := range c.nodes {
		testkit.Eventually(t, "all are not ready", func() bool { return !c.ready(i) })
	}
	if r := kit.Leaf(t, "tag", "add", "late", "-s", c.urls()); r.Status == 0 {
		t.Error("a tag was created")
	}
	set.Stop()
}
