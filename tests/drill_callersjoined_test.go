//go:build drills

package tests

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hangNoticed is within what time a generator that hangs gets no more requests.
const hangNoticed = 5 * time.Second

// Generators that joined one NATS fail in turn, under load of all kinds of callers.
func TestDrillCallersJoined(t *testing.T) {
	for _, c := range []struct {
		name       string
		generators int
		lasts      time.Duration
		fault      func(victim *generator)
		end        func(victim *generator) // nil: it stays away
		want       calm
	}{
		{name: "killed", generators: 3, lasts: 10 * time.Second, fault: func(g *generator) { g.kill() }, want: calm{within: time.Second}},
		{
			name: "frozen", generators: 3, lasts: 10 * time.Second,
			fault: func(g *generator) { g.freeze() }, end: func(g *generator) { g.signal(syscall.SIGCONT) }, want: calm{within: hangNoticed},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := newNATS(t).ClientURL()
			var faces []string
			var all []*generator
			for i := range c.generators {
				g := serve(t, t.TempDir(), "-s", url, "--tag", "order:20000", "--node", fmt.Sprint("n", i), "--http", "127.0.0.1:0")
				awaitStatus(t, strings.TrimPrefix(g.http, "http://"), "/readyz", http.StatusOK)
				all, faces = append(all, g), append(faces, g.http)
			}
			calls := newCallers(t, "order")
			calls.ask("", url)
			calls.askHTTP(faces...)
			calls.attack(c.lasts, func() { c.fault(all[0]) }, func() {
				if c.end != nil {
					c.end(all[0])
				}
			})
			calls.stop(c.want)
		})
	}
}

// attack lets the callers ask for a while, begins the fault, ends it, and lets them ask for another while.
func (c *callers) attack(lasts time.Duration, fault, end func()) {
	time.Sleep(5 * time.Second)
	c.begin()
	fault()
	time.Sleep(lasts)
	end()
	time.Sleep(5 * time.Second)
}
