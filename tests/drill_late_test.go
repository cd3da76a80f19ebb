//go:build drills

package tests

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/mariadb"
	"github.com/leafbus/leafbus/tests/proxy"
)

// cutOffFor is how long a generator is cut off in a drill: several times what the
// others wait for it.
const cutOffFor = 12 * time.Second

// One of two generators on MySQL is cut off by a network that is silent, and then stands still,
// each for 12 s, while max_id is moved. Nobody gets an ID below for a request that
// was sent after the command returned. The table is read once a minute: the generator
// would not learn it from there.
func TestDrillMaxIDWhileCutOff(t *testing.T) {
	dsn := mariadb.NewDatabase(t)
	server := newNATS(t)
	url := server.ClientURL()
	link, err := proxy.Start(strings.TrimPrefix(url, "nats://"))
	must(t, err)
	t.Cleanup(link.Close)
	args := []string{"--mysql", dsn, "--max-step", "100000"}
	cut := serve(t, t.TempDir(), append(args, "-s", "nats://"+link.Addr(), "--node", "cut", "--tag", "order:100000")...)
	serve(t, t.TempDir(), append(args, "-s", url, "--node", "other")...)
	nc := connect(t, url)
	probe := startProbe(t, nc, bus.SubjectSegment+".order")
	l := startLoad(t, loadConfig{tag: "order", callers: 2, maxBatch: 100, patience: time.Second, mayGiveUp: true}, url)
	l.more(500)
	for name, way := range map[string]struct{ stop, resume func() }{
		"cut off": {func() { link.Hang(true) }, func() { link.Cut(); link.Hang(false) }},
		"frozen":  {cut.freeze, func() { cut.signal(syscall.SIGCONT) }},
	} {
		askBuffers(t, nc, "order", 2) // both have IDs in memory
		way.stop()
		began := time.Now()
		floor := l.highest.Load() + 50_000_000
		moveMaxID(t, url, floor).want(t, 0, "cut")
		l.floor.Store(floor)
		t.Logf("%s: max_id was moved after %v", name, time.Since(began).Round(time.Millisecond))
		time.Sleep(cutOffFor - time.Since(began)) // what a drill is for
		way.resume()
		back := time.Now()
		states(t, client(t, url), 2)
		t.Logf("%s: back after %v", name, time.Since(back).Round(time.Millisecond))
		l.more(2000)
		if id := l.stale.Load(); id != 0 {
			t.Fatalf("%s: ID %d was handed out after max_id was moved to %d", name, id, floor)
		}
	}
	probe.stop()
	l.stop()
}
