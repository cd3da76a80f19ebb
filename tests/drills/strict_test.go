//go:build drills

package drills

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// Callers of a strict tag at three generators, each of which reaches NATS over a link of its own. Claims lose their answers, links
// hang, swallow and delay, and leaders change. Every answer is above all that arrived before its request was sent.
func TestDrillStrict(t *testing.T) {
	c := newNATSCluster(t, buildNATS(t, embeddedVersion(t)))
	var links []*kit.Link
	for i := range 3 {
		link := kit.NewLink(t, c.urls[i][len("nats://"):])
		links = append(links, link)
		kit.Join(t, "nats://"+link.Addr())
	}
	kit.LeafOK(t, "tag", "add", "invoice", "--order", "strict", "-s", c.all())
	set := callers.New(t, callers.Config{Tags: []string{"invoice"}, Strict: []string{"invoice"}, Batch: 500,
		Deadline: 5 * time.Second, MayFail: callers.AnyFailure})
	for range 20 {
		set.Raw(c.all()).RawJSON(c.all()).Take(c.all()).Next(c.all()).Bulk(c.all())
	}
	const beyond = 7 * time.Second // longer than a generator waits for its store, and than its peers wait for it
	for _, round := range []struct {
		name  string
		fault func()
	}{
		{"claims that are done and have no answer", func() { loseClaims(t, set, links) }},
		{"a link hangs, and goes on", func() {
			links[0].Hang(true)
			time.Sleep(beyond)
			links[0].Hang(false)
		}},
		{"a link hangs, and is cut", func() {
			links[1].Hang(true)
			time.Sleep(beyond)
			links[1].Cut()
			links[1].Hang(false)
		}},
		{"a link swallows what a generator sends", func() {
			links[2].OnRequest(func([]byte) kit.Action { return kit.Drop })
			time.Sleep(beyond)
			links[2].OnRequest(nil)
			links[2].Cut()
		}},
		{"a generator is 100 ms away", func() {
			links[0].Delay(100 * time.Millisecond)
			set.More(5000)
			links[0].Delay(0)
		}},
		{"leaders step down", func() {
			for range 5 {
				stepDown(t, c.nc)
				set.More(500)
			}
		}},
		{"the leader is frozen", func() {
			i := leader(t, c.nc, "KV_LEAF_TAGS")
			kit.Must(t, c.servers[i].Freeze())
			time.Sleep(2 * beyond)
			kit.Must(t, c.servers[i].Thaw())
		}},
		{"the leader is killed", func() {
			i := leader(t, c.nc, "KV_LEAF_TAGS")
			kit.Must(t, c.servers[i].Kill())
			set.More(500)
			c.start(i)
		}},
	} {
		set.More(1000)
		set.Fault()
		round.fault()
		set.More(1000)
		set.Check()
		t.Log(round.name)
	}
	set.MoreOfEach()
	set.Stop()
}

// loseClaims cuts links right after a claim was sent, again and again. Half of these claims are done.
func loseClaims(t *testing.T, set *callers.Callers, links []*kit.Link) {
	t.Helper()
	var due, done atomic.Int64
	for _, link := range links {
		link.OnRequest(func(data []byte) kit.Action {
			if !bytes.Contains(data, []byte("$KV.LEAF_TAGS.invoice")) || due.Add(-1) < 0 {
				return kit.Forward
			}
			if done.Add(1)%2 == 0 {
				return kit.CutAfter
			}
			return kit.CutBefore
		})
	}
	for range 20 {
		due.Store(1)
		testkit.Eventually(t, "a claim that is cut off", func() bool { return due.Load() <= 0 })
		set.More(200)
	}
	for _, link := range links {
		link.OnRequest(nil)
	}
	t.Logf("%d claims were cut off", done.Load())
}
