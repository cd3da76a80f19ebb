//go:build drills

package drills

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leafbus/leafbus/internal/testkit"
	"github.com/leafbus/leafbus/tests/kit"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// distance is how long a message takes from one region to the other.
const distance = 40 * time.Millisecond

// ocean is a line between two regions. It delays both directions, and may be cut.
type ocean struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func newOcean(t *testing.T, target string) *ocean {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	o := &ocean{listener: l, target: target}
	t.Cleanup(func() { l.Close(); o.set(true) })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", target)
			o.mu.Lock()
			if err != nil || o.cut {
				near.Close()
			} else {
				o.conns = append(o.conns, near, far)
				go carry(near, far)
				go carry(far, near)
			}
			o.mu.Unlock()
		}
	}()
	return o
}

// set cuts the line: its connections end, and new ones too.
func (o *ocean) set(cut bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cut = cut
	for _, c := range o.conns {
		c.Close()
	}
	o.conns = nil
}

func carry(from, to net.Conn) {
	type chunk struct {
		at   time.Time
		data []byte
	}
	chunks := make(chan chunk, 1024)
	go func() {
		for c := range chunks {
			time.Sleep(time.Until(c.at))
			if _, err := to.Write(c.data); err != nil {
				from.Close()
			}
		}
		to.Close()
	}()
	defer close(chunks)
	for {
		data := make([]byte, 16384)
		n, err := from.Read(data)
		if n > 0 {
			chunks <- chunk{time.Now().Add(distance), data[:n]}
		}
		if err != nil {
			return
		}
	}
}

// regionServer runs a NATS server in this process.
func regionServer(t *testing.T, conf string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	writeFile(t, file, "ping_interval: \"1s\", ping_max: 2\n"+conf)
	opts, err := server.ProcessConfigFile(file)
	kit.Must(t, err)
	opts.NoSigs = true
	ns, err := server.NewServer(opts)
	kit.Must(t, err)
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(kit.Patience) {
		t.Fatal("NATS is not ready")
	}
	return "nats://" + opts.Host + ":" + fmt.Sprint(opts.Port)
}

// region is a place with generators and callers.
type region struct {
	url     string
	all     []*kit.Generator
	callers *callers.Callers
}

// TestDrillRegions prints what callers in two regions meet: one has the state, and the other one is joined to it by a
// gateway, or as a leaf node. Both have generators. The line between them is cut, and later the generators of the far
// region end.
func TestDrillRegions(t *testing.T) {
	for name, join := range map[string]func(t *testing.T) (near, far, domain string, line func(cut bool)){
		"gateway": byGateway, "leaf node": byLeafNode,
	} {
		t.Run(name, func(t *testing.T) {
			near, far, domain, line := join(t)
			var args []string
			js, err := jetstream.New(kit.Connect(t, far))
			if domain != "" {
				args = []string{"--js-domain", domain}
				js, err = jetstream.NewWithDomain(kit.Connect(t, far), domain)
			}
			kit.Must(t, err)
			testkit.Eventually(t, "the regions are joined", func() bool {
				_, err := js.AccountInfo(t.Context())
				return err == nil
			})
			regions := map[string]*region{"near": {url: near}, "far": {url: far}}
			for _, where := range []string{"near", "far"} { // the first one makes the installation
				r := regions[where]
				for i := range 2 {
					r.all = append(r.all, kit.Join(t, r.url, append(args, "--node", fmt.Sprint(where, i), "--tag", "order")...))
				}
			}
			kit.LeafOK(t, "tag", "add", "-s", near, "receipt", "--order", "strict")
			begin := func(deadline time.Duration, tags ...string) {
				for _, r := range regions {
					cfg := callers.Config{Tags: tags, Batch: 20, Deadline: deadline, Pause: 5 * time.Millisecond,
						MayFail: callers.AnyFailure}
					if tags[0] == "receipt" {
						cfg.Strict = tags
					}
					r.callers = callers.New(t, cfg).Raw(r.url).Take(r.url)
					r.callers.More(100)
				}
			}
			end := func(what string) {
				for where, r := range regions {
					for kind, met := range r.callers.Stop() {
						t.Logf("%s, %s: %-5s %v", what, where, kind, met)
					}
				}
			}
			steady := func(d time.Duration) {
				for _, r := range regions {
					r.callers.Fault()
				}
				time.Sleep(d)
			}
			begin(500*time.Millisecond, "order", callers.Snowflakes)
			steady(5 * time.Second)
			end("all is well")
			begin(2*time.Second, "receipt")
			steady(5 * time.Second)
			end("a strict tag")
			begin(500*time.Millisecond, "order", callers.Snowflakes)
			for _, r := range regions {
				r.callers.Fault()
			}
			line(true)
			time.Sleep(15 * time.Second)
			line(false)
			time.Sleep(5 * time.Second)
			end("the line is cut for 15 s")
			nc := kit.Connect(t, strings.Split(near, ",")[0])
			testkit.Eventually(t, "all are ready again", func() bool {
				states := kit.States(nc)
				return len(states) == 4 && !slices.ContainsFunc(states, func(s kit.State) bool { return !s.Ready })
			})
			begin(500*time.Millisecond, "order", callers.Snowflakes)
			for _, r := range regions {
				r.callers.Fault()
			}
			for _, g := range regions["far"].all {
				kit.Must(t, g.Kill())
			}
			time.Sleep(8 * time.Second)
			end("the generators of the far region are killed")
			kit.LeafOK(t, append(args, "audit", "-s", near)...)
		})
	}
}

// stateRegion is the region with the state: three servers. more is added to the configuration of each, and jetStream to
// that of JetStream.
func stateRegion(t *testing.T, jetStream string, more func(i int) string) (url string) {
	t.Helper()
	var routes []string
	for range 3 {
		routes = append(routes, testkit.FreeAddress(t))
	}
	var urls []string
	for i := range 3 {
		urls = append(urls, regionServer(t, fmt.Sprintf("server_name: near%d\nlisten: %s\njetstream {store_dir: %s, sync_interval: always %s}\n"+
			"cluster {name: near, listen: %s, routes: [nats://%s]}\n%s", i, testkit.FreeAddress(t), t.TempDir(), jetStream, routes[i],
			strings.Join(routes, ", nats://"), more(i))))
	}
	return strings.Join(urls, ",")
}

func byGateway(t *testing.T) (near, far, domain string, line func(cut bool)) {
	var lines []*ocean
	at := make(map[string]string) // where each server takes connections of the other region
	seen := make(map[string]string)
	for _, name := range []string{"near0", "near1", "near2", "far0"} {
		at[name] = testkit.FreeAddress(t)
		o := newOcean(t, at[name])
		lines = append(lines, o)
		seen[name] = o.listener.Addr().String()
	}
	gateway := func(name, own, other string, servers ...string) string {
		var urls []string
		for _, s := range servers {
			urls = append(urls, "nats://"+seen[s])
		}
		return fmt.Sprintf("gateway {name: %s, listen: %s, advertise: %s, gateways: [{name: %s, urls: [%s]}]}", own, at[name],
			seen[name], other, strings.Join(urls, ", "))
	}
	near = stateRegion(t, "", func(i int) string { return gateway(fmt.Sprint("near", i), "near", "far", "far0") })
	far = regionServer(t, fmt.Sprintf("server_name: far0\nlisten: %s\ncluster {name: far, listen: %s}\n%s",
		testkit.FreeAddress(t), testkit.FreeAddress(t), gateway("far0", "far", "near", "near0", "near1", "near2")))
	return near, far, "", func(cut bool) {
		for _, o := range lines {
			o.set(cut)
		}
	}
}

// Over a leaf node without JetStream, only a domain leads to the JetStream of another server.
func byLeafNode(t *testing.T) (near, far, domain string, line func(cut bool)) {
	var lines []*ocean
	var urls []string
	var at []string
	for range 3 {
		at = append(at, testkit.FreeAddress(t))
		o := newOcean(t, at[len(at)-1])
		lines = append(lines, o)
		urls = append(urls, "nats://"+o.listener.Addr().String())
	}
	near = stateRegion(t, ", domain: near", func(i int) string {
		return fmt.Sprintf("leafnodes {listen: %s, no_advertise: true}", at[i])
	})
	far = regionServer(t, fmt.Sprintf("server_name: far0\nlisten: %s\nleafnodes {remotes: [{urls: [%s]}]}",
		testkit.FreeAddress(t), strings.Join(urls, ", ")))
	return near, far, "near", func(cut bool) {
		for _, o := range lines {
			o.set(cut)
		}
	}
}
