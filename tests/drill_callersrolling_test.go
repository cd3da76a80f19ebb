//go:build drills

package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
)

// Generators are stopped by SIGTERM and started again, one after the other, and then the servers that they joined.
func TestDrillCallersRollingJoined(t *testing.T) {
	servers := newThreeServers(t)
	var urls, faces []string
	for i := range servers.servers {
		urls = append(urls, servers.url(i))
	}
	all := strings.Join(urls, ",")
	var generators []*generator
	for i := range 2 {
		face := testkit.FreeAddress(t)
		generators = append(generators, serve(t, t.TempDir(), "-s", all, "--tag", "order:20000", "--node", fmt.Sprint("n", i), "--http", face))
		awaitStatus(t, strings.TrimPrefix(generators[i].http, "http://"), "/readyz", http.StatusOK)
		faces = append(faces, generators[i].http)
	}
	calls := newCallers(t, "order")
	calls.ask("", urls...)
	calls.askHTTP(faces...)
	calls.attack(time.Second, func() {
		for i, g := range generators {
			g.stop()
			generators[i] = g.again(t, "-s", all, "--http", strings.TrimPrefix(g.http, "http://"))
			awaitStatus(t, strings.TrimPrefix(g.http, "http://"), "/readyz", http.StatusOK)
			time.Sleep(time.Second)
		}
	}, func() {})
	calls.stop(calm{none: true, noneHTTP: true})

	calls = newCallers(t, "order")
	calls.ask(", servers", urls...)
	calls.askHTTP(faces...)
	calls.attack(time.Second, func() {
		for i := range servers.servers {
			servers.servers[i].Close()
			servers.servers[i].start()
			for j := range servers.servers {
				servers.awaitHealth(j)
			}
			for _, face := range faces {
				awaitStatus(t, strings.TrimPrefix(face, "http://"), "/readyz", http.StatusOK)
			}
			time.Sleep(time.Second)
		}
	}, func() {})
	calls.stop(calm{})
}

// Three generators whose embedded servers form a cluster are stopped by SIGTERM and started again, one after the other.
func TestDrillCallersRollingEmbedded(t *testing.T) {
	m := newMachines(t, t.TempDir(), t.TempDir(), t.TempDir())
	m.embed()
	m.runAll()
	calls := newCallers(t, "order")
	calls.token = machinesToken
	for i := range m.folders {
		calls.ask(fmt.Sprint(", n", i), m.url(i), m.url((i+1)%3), m.url((i+2)%3))
	}
	calls.askHTTP(m.faces()...)
	calls.attack(time.Second, func() {
		for i := range m.folders {
			m.running[i].stop()
			m.run(i)
			m.awaitReady(i)
			time.Sleep(2 * time.Second)
		}
	}, func() {})
	calls.stop(calm{})
}
