//go:build drills

package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// Three generators whose embedded servers form a cluster are an installation
// without a single point of failure. Each is killed in turn, under load: the
// two others go on, with the state that is kept three times, and no ID repeats.
func TestDrillClusterOfGenerators(t *testing.T) {
	seed := allocatortest.Seed(t)
	const size = 3
	var routes []string
	for range size {
		routes = append(routes, freeAddress(t))
	}
	var urls []string
	processes := make([]*process, size)
	dirs := make([]string, size)
	args := make([][]string, size)
	for i := range size {
		dirs[i] = t.TempDir()
		url := freeAddress(t)
		conf := filepath.Join(dirs[i], "nats.conf")
		text := fmt.Sprintf("server_name: s%d\nlisten: %q\ncluster { name: leaf, listen: %q, routes: [%s] }\n",
			i, strings.TrimPrefix(url, "nats://"), strings.TrimPrefix(routes[i], "nats://"), strings.Join(routes, ", "))
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args[i] = []string{"serve", "--http", "", "--nats-config", conf, "--tag", "order:200", "--node", fmt.Sprint("n", i)}
		processes[i] = start(t, command(t, dirs[i], nil, args[i]))
		urls = append(urls, url)
	}
	for i, p := range processes {
		ready(t, dirs[i], p)
	}
	all := strings.Join(urls, ",")
	takeOne(t, client(t, all), "order") // the cluster has elected its leaders

	l := startLoad(t, loadConfig{
		tag: "order", callers: 4, maxBatch: 2000,
		patience: patience / 80, mayGiveUp: true, // an answer may have died with its generator
	}, all, all)
	for i := range processes {
		l.more(300 + seed.Int64N(700))
		processes[i].kill()
		l.more(300) // the two others serve
		processes[i] = start(t, command(t, dirs[i], nil, args[i]))
		ready(t, dirs[i], processes[i])
		// The next one may only go when this one has caught up.
		states(t, client(t, all), size)
	}
	l.stop()
	l.agrees(all)
}
