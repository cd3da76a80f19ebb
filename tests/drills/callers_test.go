//go:build drills

package drills

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// fault is what happens to an installation under the load of all kinds of callers.
type fault struct {
	name  string
	lasts time.Duration
	begin func()
	end   func() // nil: it ends by itself
	// spared says that no call fails of callers that know the client, and of plain ones at most those under way.
	spared bool
}

// crowd is callers of all kinds at one installation.
type crowd struct {
	t   *testing.T
	url string
	all []*callers.Callers
}

// tag of each set of callers in a crowd.
var crowdTags = []string{"order", "invoice", callers.Snowflakes}

// newCrowd starts callers. Plain ones have a deadline of 2 s, those of the client one of 500 ms.
func newCrowd(t *testing.T, url string, https []string) *crowd {
	t.Helper()
	c := &crowd{t: t, url: url}
	for _, tag := range crowdTags {
		cfg := callers.Config{Tags: []string{tag}, Batch: 10, Pause: 10 * time.Millisecond, Token: token, MayFail: callers.AnyFailure}
		if tag == "invoice" {
			cfg.Strict = cfg.Tags
		}
		plain, client := cfg, cfg
		plain.Deadline, client.Deadline = 2*time.Second, hasty
		clients := callers.New(t, client).Take(url).Next(url).Bulk(url)
		if tag != "invoice" {
			clients.Pool(url)
		}
		c.all = append(c.all, callers.New(t, plain).Raw(url).RawJSON(url).HTTP(https...), clients)
	}
	return c
}

func (c *crowd) more(answers int64) {
	c.t.Helper()
	for _, set := range c.all {
		set.More(answers)
	}
}

// attack begins a fault while the callers ask, ends it, and prints what they met. Afterwards all must be served.
func (c *crowd) attack(f fault) {
	c.t.Helper()
	c.more(200)
	for _, set := range c.all {
		set.Fault()
	}
	f.begin()
	time.Sleep(f.lasts)
	if f.end != nil {
		f.end()
	}
	for _, set := range c.all {
		set.More(200)
		set.MoreOfEach()
	}
	for i, set := range c.all {
		for kind, met := range set.Stop() {
			if f.spared && met.Failed > 2 && kind != "HTTP" {
				c.t.Errorf("%s, %q: %d calls failed", kind, crowdTags[i/2], met.Failed)
			}
		}
	}
	for i, tag := range crowdTags {
		unique(c.t, tag, c.all[2*i:2*i+2]...)
	}
	auditAgrees(c.t, c.url, "order", c.all[:2]...)
}

// Each fault happens to one of three generators whose embedded servers form a cluster, or to two of them.
func TestDrillCallersEmbedded(t *testing.T) {
	var c *cluster
	var disk *smallDisk
	var victim int
	for _, f := range []fault{
		{name: "killed", lasts: 10 * time.Second, begin: func() { c.kill(0) }, end: func() { c.start(0) }},
		{
			name: "frozen", lasts: 10 * time.Second,
			begin: func() { kit.Must(t, c.nodes[0].Freeze()) }, end: func() { kit.Must(t, c.nodes[0].Thaw()) },
		},
		{
			name: "silent", lasts: 20 * time.Second,
			begin: func() { c.silence(0, true) }, end: func() { c.silence(0, false) },
		},
		{
			name: "leader of the tags killed", lasts: 15 * time.Second,
			begin: func() { victim = leader(t, c.nc, "KV_LEAF_TAGS"); c.kill(victim) }, end: func() { c.start(victim) },
		},
		{
			name: "quorum lost", lasts: 30 * time.Second,
			begin: func() { c.kill(1); c.kill(2) }, end: func() { c.start(1); c.start(2) },
		},
		{name: "empty disk", lasts: 5 * time.Second, begin: func() { c.replace(0) }},
		{
			name: "disk full", lasts: 25 * time.Second,
			begin: func() { disk.fill() }, end: func() { disk.free(); c.supervise(0) },
		},
		{name: "rolling restart", begin: func() {
			for i := range c.nodes {
				kit.Must(t, c.nodes[i].Stop())
				c.start(i)
				for j := range c.nodes {
					c.awaitReady(j)
				}
			}
		}},
	} {
		t.Run(f.name, func(t *testing.T) {
			disk = newSmallDisk(t, "64m")
			c = newCluster(t, disk.dir)
			kit.LeafOK(t, "tag", "add", "invoice", "--order", "strict", "-s", c.urls())
			newCrowd(t, c.urls(), c.https()).attack(f)
			for i := range c.nodes {
				c.awaitReady(i)
			}
		})
	}
}

// Each fault happens to generators that joined a cluster of three NATS servers, or to these servers. Tags in trend order are in
// MariaDB.
func TestDrillCallersJoined(t *testing.T) {
	var c *natsCluster
	var all []*kit.Generator
	var db *kit.MariaDB
	var link *kit.Link
	var victim int
	restart := func(i int, args ...string) {
		kit.Must(t, all[i].Stop())
		all[i] = all[i].Again(args...)
		awaitStatus(t, all[i].HTTP, "/readyz", http.StatusOK)
	}
	for _, f := range []fault{
		{name: "generator killed", lasts: 10 * time.Second, spared: true, begin: func() { kit.Must(t, all[0].Kill()) },
			end: func() { all[0] = all[0].Again() }},
		{
			name: "generator frozen", lasts: 10 * time.Second,
			begin: func() { kit.Must(t, all[0].Freeze()) }, end: func() { kit.Must(t, all[0].Thaw()) },
		},
		{
			name: "generator silent", lasts: 15 * time.Second,
			begin: func() { link.Hang(true) }, end: func() { link.Hang(false) },
		},
		{
			name: "NATS server frozen", lasts: 10 * time.Second,
			begin: func() { kit.Must(t, c.servers[1].Freeze()) }, end: func() { kit.Must(t, c.servers[1].Thaw()) },
		},
		{
			name: "leader of the tags killed", lasts: 15 * time.Second,
			begin: func() { victim = leader(t, c.nc, "KV_LEAF_TAGS"); kit.Must(t, c.servers[victim].Kill()) },
			end:   func() { c.start(victim) },
		},
		{
			name: "quorum lost", lasts: 30 * time.Second,
			begin: func() { kit.Must(t, c.servers[0].Kill()); kit.Must(t, c.servers[2].Kill()) },
			end:   func() { c.start(0); c.start(2) },
		},
		{name: "database killed", lasts: 30 * time.Second, begin: func() { kit.Must(t, db.Kill()) }, end: func() { kit.Must(t, db.Run()) }},
		{name: "database hung", lasts: 30 * time.Second, begin: func() { kit.Must(t, db.Freeze()) }, end: func() { kit.Must(t, db.Thaw()) }},
		{name: "rolling restart of generators", begin: func() {
			for i := range all {
				restart(i)
			}
		}, spared: true},
		{name: "rolling restart of NATS servers", begin: func() {
			for i := range c.servers {
				kit.Must(t, c.servers[i].Signal(syscall.SIGTERM))
				_, err := c.servers[i].Wait()
				kit.Must(t, err)
				c.start(i)
				c.current()
			}
		}},
	} {
		t.Run(f.name, func(t *testing.T) {
			c = newNATSCluster(t, buildNATS(t, embeddedVersion(t)))
			db = kit.NewMariaDB(t)
			dsn, err := db.Database()
			kit.Must(t, err)
			link = kit.NewLink(t, strings.TrimPrefix(c.urls[0], "nats://"))
			all = nil
			var https []string
			for i := range 3 {
				url := c.urls[i] + "," + c.all()
				if i == 0 && f.name == "generator silent" {
					url = "nats://" + link.Addr()
				}
				g := kit.Serve(t, t.TempDir(), "-s", url, "--mysql", dsn, "--node", fmt.Sprint("n", i), "--tag", "order:20000",
					"--http", testkit.FreeAddress(t))
				all, https = append(all, g), append(https, g.HTTP)
			}
			kit.LeafOK(t, "tag", "add", "invoice", "--order", "strict", "-s", c.all())
			newCrowd(t, c.all(), https).attack(f)
			for _, g := range all {
				awaitStatus(t, g.HTTP, "/readyz", http.StatusOK)
			}
		})
	}
}
