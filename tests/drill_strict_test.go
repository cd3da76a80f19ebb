//go:build drills

package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/proxy"
)

// beyond is longer than a generator waits for an answer of its store, and than its peers wait before they count it as lost.
const beyond = 7 * time.Second

// strictDrill is three generators, each of which reaches NATS through a proxy, under the load of two thousand callers.
type strictDrill struct {
	t          *testing.T
	url        string
	generators []*generator
	again      func(i int)
	ways       []*proxy.Proxy // of the generators, and of some callers
	load       *strictLoad
	seed       *rand.Rand
}

func newStrictDrill(t *testing.T) *strictDrill {
	t.Helper()
	url := newNATS(t).ClientURL()
	d := &strictDrill{t: t, url: url, seed: allocatortest.Seed(t)}
	var urls []string
	for range 4 {
		way, there := proxyTo(t, url)
		d.ways, urls = append(d.ways, way), append(urls, there)
	}
	d.generators, d.again = strictGenerators(t, urls[:3])
	addStrict(t, url, "invoice")
	// Some callers reach NATS through a proxy, too, which holds up their answers now and then.
	callers := append(slices.Repeat([]string{url}, 17), slices.Repeat(urls[3:], 3)...)
	d.load = startStrict(t, "invoice", 100, callers, addressesOf(d.generators))
	return d
}

// round makes a fault, and prints what its callers noticed.
func (d *strictDrill) round(what string, fault func()) {
	d.t.Helper()
	d.load.more(5000)
	answers, ids, began := d.load.answers.Load(), d.load.history.IDs(), time.Now()
	raise(&d.load.worst, d.load.longest.Swap(0))
	fault()
	d.load.more(5000)
	d.load.all()
	d.load.check()
	d.t.Logf("%-40s %5.1f s, %7d answers, %9d IDs, longest time without an answer with a deadline of %v: %v", what, time.Since(began).Seconds(),
		d.load.answers.Load()-answers, d.load.history.IDs()-ids, hastyDeadline, time.Duration(d.load.longest.Load()).Round(time.Millisecond))
}

// Two thousand callers take IDs of a strict tag while its generators are killed, frozen for longer than any timeout, and cut off
// in all ways. A request that is sent after the answer to another one has arrived gets higher IDs.
func TestDrillStrict(t *testing.T) {
	d := newStrictDrill(t)
	for i := range d.generators {
		d.round("kill -9 and restart", func() {
			d.generators[i].kill()
			d.load.more(1000)
			d.again(i)
		})
	}
	for i := range d.generators {
		d.round("SIGSTOP and thaw", func() {
			d.generators[i].freeze()
			time.Sleep(beyond)
			d.generators[i].signal(syscall.SIGCONT)
		})
		if i == 0 {
			d.round("max_id", func() { d.load.raiseMaxID(d.url) })
		}
	}
	d.round("a generator's connection hangs, goes on", func() {
		d.ways[0].Hang(true)
		time.Sleep(beyond)
		d.ways[0].Hang(false) // and what was held arrives
	})
	d.round("a generator's connection hangs, is cut", func() {
		d.ways[1].Hang(true)
		time.Sleep(beyond)
		d.ways[1].Cut()
		d.ways[1].Hang(false)
	})
	d.round("a proxy swallows what a generator sends", func() {
		d.ways[2].OnRequest(func([]byte) proxy.Action { return proxy.Drop })
		time.Sleep(beyond)
		d.ways[2].OnRequest(nil)
		d.ways[2].Cut()
	})
	d.round("a generator is 100 ms away", func() {
		d.ways[0].Delay(100 * time.Millisecond)
		d.load.more(10_000)
		d.load.raiseMaxID(d.url)
		d.load.more(10_000)
		d.ways[0].Delay(0)
	})
	d.round("callers' connections hang, go on", func() {
		for range 5 {
			d.ways[3].Hang(true)
			time.Sleep(time.Duration(d.seed.IntN(1500)) * time.Millisecond)
			d.ways[3].Hang(false)
			d.load.more(500)
		}
		d.ways[3].Cut()
	})
	d.round("claims that are done and have no answer", d.loseAnswers)
	d.round("max_id", func() { d.load.raiseMaxID(d.url) })
	d.load.stop()
}

// loseAnswers cuts connections of generators right after a claim was sent, again and again. Half of them are done.
func (d *strictDrill) loseAnswers() {
	var due, done atomic.Int64
	for _, way := range d.ways[:len(d.generators)] {
		way.OnRequest(func(data []byte) proxy.Action {
			if !bytes.Contains(data, []byte("$KV.LEAF_TAGS.invoice")) || due.Add(-1) < 0 {
				return proxy.Forward
			}
			if done.Add(1)%2 == 0 {
				return proxy.CutAfter
			}
			return proxy.CutBefore
		})
	}
	for range 20 {
		due.Store(1)
		testkit.Eventually(d.t, "a claim to be cut off", func() bool { return due.Load() <= 0 })
		d.load.more(200)
	}
	for _, way := range d.ways {
		way.OnRequest(nil)
	}
	d.t.Logf("%d claims were cut off", done.Load())
}

// Three generators whose embedded servers form a cluster. The server that leads the stream of the tags is killed, frozen, and told
// to step down, each more than once, under the load of a thousand callers.
func TestDrillStrictCluster(t *testing.T) {
	c := newThreeOf(t, &ledgered{t: t})
	client := bus.NewClient(c.nc)
	c.allReady(client)
	var urls []string
	for _, g := range c.nodes {
		urls = append(urls, g.url)
	}
	all := strings.Join(urls, ",")
	addStrict(t, all, "invoice")
	nc := connect(t, all)
	d := &strictDrill{t: t, load: startStrict(t, "invoice", 100, slices.Repeat([]string{all}, 10), addressesOf(c.nodes[:]))}
	for range 5 {
		d.round("the leader steps down", func() { stepDown(t, nc) })
	}
	for range 2 {
		d.round("kill -9 of the leader and restart", func() {
			i := tagsLeader(t, nc)
			c.nodes[i].kill()
			d.load.more(1000)
			c.resume(i, true)
			c.allReady(client)
		})
		d.round("SIGSTOP of the leader and thaw", func() {
			i := tagsLeader(t, nc)
			c.nodes[i].freeze()
			time.Sleep(2 * beyond) // the others elect a leader after up to 9 s
			c.nodes[i].signal(syscall.SIGCONT)
		})
		d.round("max_id", func() { d.load.raiseMaxID(all) })
	}
	d.load.stop()
}

// tagsLeader is the number of the generator whose server leads the stream of the tags.
func tagsLeader(t *testing.T, nc *nats.Conn) (i int) {
	t.Helper()
	testkit.Eventually(t, "a leader", func() bool {
		msg, err := nc.Request("$JS.API.STREAM.INFO.KV_"+bus.BucketTags, nil, time.Second)
		if err != nil {
			return false
		}
		var info struct{ Cluster struct{ Leader string } }
		must(t, json.Unmarshal(msg.Data, &info))
		_, err = fmt.Sscanf(info.Cluster.Leader, "s%d", &i)
		return err == nil
	})
	return i
}

// stepDown makes the stream of the tags elect a leader.
func stepDown(t *testing.T, nc *nats.Conn) {
	t.Helper()
	testkit.Eventually(t, "the leader to step down", func() bool {
		msg, err := nc.Request("$JS.API.STREAM.LEADER.STEPDOWN.KV_"+bus.BucketTags, nil, time.Second)
		return err == nil && strings.Contains(string(msg.Data), `"success":true`)
	})
}
