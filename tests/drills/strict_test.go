//go:build drills

package drills

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/natskit"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// beyond is longer than a generator waits for its store, and than its peers wait for it.
const beyond = 7 * time.Second

// strictCallers starts a hundred callers of a new strict tag. Every answer must be above all that arrived before its request was sent.
func strictCallers(t *testing.T, url string) *callers.Callers {
	t.Helper()
	kit.LeafOK(t, "tag", "add", "invoice", "--order", "strict", "-s", url)
	set := callers.New(t, callers.Config{Tags: []string{"invoice"}, Strict: []string{"invoice"}, Batch: 500,
		Deadline: 5 * time.Second, MayFail: callers.AnyFailure})
	for range 20 {
		set.Raw(url).RawJSON(url).Take(url).Next(url).Bulk(url)
	}
	return set
}

// strictRound is a fault under the load of callers.
type strictRound struct {
	name  string
	fault func()
}

func strictRounds(t *testing.T, set *callers.Callers, rounds []strictRound) {
	t.Helper()
	for _, r := range rounds {
		set.More(1000)
		began := time.Now()
		r.fault()
		set.More(1000)
		set.Check()
		t.Logf("%s: %v", r.name, time.Since(began).Round(100*time.Millisecond))
	}
	set.MoreOfEach()
	set.Stop()
}

// Each of three generators reaches NATS over a link of its own. Claims lose their answers, links hang, swallow and delay.
func TestDrillStrict(t *testing.T) {
	url := natskit.Start(t).ClientURL()
	var links []*kit.Link
	for range 3 {
		link := kit.NewLink(t, strings.TrimPrefix(url, "nats://"))
		links = append(links, link)
		kit.Join(t, "nats://"+link.Addr())
	}
	set := strictCallers(t, url)
	strictRounds(t, set, []strictRound{
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
	})
}

// Three generators joined a cluster of three NATS servers. The leader of the tags steps down, is frozen, and is killed.
func TestDrillStrictLeaders(t *testing.T) {
	c := newNATSCluster(t, buildNATS(t, embeddedVersion(t)))
	for range 3 {
		kit.Join(t, c.all())
	}
	set := strictCallers(t, c.all())
	strictRounds(t, set, []strictRound{
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
	})
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
