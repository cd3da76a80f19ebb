//go:build drills

package tests

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/internal/testkit"
)

// waitRedundant starts leaf nodes --wait-redundant.
func waitRedundant(t *testing.T, urls string, args ...string) *process {
	t.Helper()
	return start(t, command(t, t.TempDir(), nil, append([]string{"nodes", "--wait-redundant", "-s", urls}, args...)))
}

// says waits until a command that must still run has written the text to stderr.
func (p *process) says(text string) {
	p.t.Helper()
	testkit.Eventually(p.t, text, func() bool {
		select {
		case <-p.exited:
			p.t.Fatalf("%v ended: %s%s", p.cmd.Args, p.stdout.String(), p.stderr.String())
		default:
		}
		return strings.Contains(p.stderr.String(), text)
	})
}

// redundant waits until the command says that any one machine may go.
func (p *process) redundant() {
	p.t.Helper()
	began := time.Now()
	if status := p.wait(2 * patience); status != 0 || !strings.HasPrefix(p.stdout.String(), "redundant: ") {
		p.t.Fatalf("exit status %d: %s%s", status, p.stdout.String(), p.stderr.String())
	}
	p.t.Logf("redundant after %v", time.Since(began).Round(time.Millisecond))
}

// plainCallers ask with a timeout of 2 s and never again for the same.
type plainCallers struct {
	answers, timeouts atomic.Int64
	refused           sync.Map // by the text of the refusal
	stop              context.CancelFunc
	wg                sync.WaitGroup
}

func startPlainCallers(t *testing.T, subject string, urls ...string) *plainCallers {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &plainCallers{stop: cancel}
	t.Cleanup(p.end)
	for _, url := range urls {
		nc := connect(t, url)
		p.wg.Go(func() {
			for pause := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil; <-pause.C {
				msg, err := nc.Request(subject, nil, 2*time.Second)
				switch {
				case err == nil && len(msg.Header) == 0:
					p.answers.Add(1)
				case err == nil:
					p.refused.Store(string(msg.Data), true)
				case err == nats.ErrTimeout:
					p.timeouts.Add(1)
				default:
					p.refused.Store(err.Error(), true)
				}
			}
		})
	}
	return p
}

func (p *plainCallers) end() {
	p.stop()
	p.wg.Wait()
}

// Each machine of three is killed when leaf nodes --wait-redundant says that it may go. Plain callers at the
// others are never refused; only the requests that the killed one had taken have no answer.
// While a machine is away the command waits, and says what is missing.
func TestDrillWaitRedundant(t *testing.T) {
	r := newRing(t)
	waitRedundant(t, r.servers()).redundant()
	for i := range r.nodes {
		var others []string
		for j, url := range r.urls {
			if j != i {
				others = append(others, url)
			}
		}
		tags, flakes := startPlainCallers(t, "leaf.segment.order", others...), startPlainCallers(t, "leaf.snowflake", others...)
		testkit.Eventually(t, "answers", func() bool { return tags.answers.Load() > 20 && flakes.answers.Load() > 20 })
		r.nodes[i].kill()
		w := waitRedundant(t, r.servers())
		w.says(fmt.Sprintf("replica s%d is ", i))
		r.start(i)
		w.redundant()
		for j := range r.nodes {
			if !r.isReady(j) {
				t.Errorf("n%d is not ready", j)
			}
		}
		r.print()
		r.check()
		for what, p := range map[string]*plainCallers{"segments": tags, "snowflakes": flakes} {
			p.end()
			t.Logf("n%d killed: %s: %d answers, %d timeouts", i, what, p.answers.Load(), p.timeouts.Load())
			if n := p.timeouts.Load(); n > int64(len(others)) {
				t.Errorf("n%d killed: %d requests for %s had no answer, and at most one of each caller was under way", i, n, what)
			}
			p.refused.Range(func(text, _ any) bool {
				t.Errorf("n%d killed: %s: refused: %v", i, what, text)
				return true
			})
		}
	}
	r.nodes[0].kill()
	short := waitRedundant(t, r.servers(), "--wait", "4s", "--json")
	if status := short.wait(patience); status != 1 || !strings.Contains(short.stdout.String(), `{"redundant":false,"missing":[{"what":`) {
		t.Errorf("after 4 s: status %d: %s%s", status, short.stdout.String(), short.stderr.String())
	}
}

// Two generators join a cluster of three NATS servers. While both use one server, it may not go, and only a person
// can change that. A server that is stopped is waited for.
func TestDrillWaitRedundantJoined(t *testing.T) {
	c := newThreeServers(t)
	all := strings.Join([]string{c.url(0), c.url(1), c.url(2)}, ",")
	serve(t, t.TempDir(), "-s", c.url(0), "--node", "a")
	b := serve(t, t.TempDir(), "-s", c.url(0), "--node", "b")
	lone := waitRedundant(t, all, "--wait", "10s")
	if status := lone.wait(patience); status != 1 {
		t.Errorf("status %d: %s%s", status, lone.stdout.String(), lone.stderr.String())
	}
	result{1, "", lone.stderr.String()}.want(t, 1, "services segments, snowflakes: all generators that are ready (a, b) use the NATS server s0",
		"restart one with another server first in --server")
	b.stop()
	serve(t, b.dir, "-s", c.url(1), "--node", "b")
	waitRedundant(t, all).redundant()

	c.servers[2].Close()
	w := waitRedundant(t, strings.Join([]string{c.url(0), c.url(1)}, ","))
	w.says("replica s2 is ")
	c.servers[2].start()
	w.redundant()
}

// The machines of a cluster are replaced by ones with empty disks, one after the other. Each goes when leaf nodes
// --wait-redundant allows it, and nothing else is looked at. Nothing is lost.
func TestDrillReplaceWhenRedundant(t *testing.T) {
	r := newRing(t)
	l := r.load()
	for i, began := 0, time.Now(); time.Since(began) < time.Minute; i = (i + 1) % len(r.nodes) {
		l.more(100)
		waitRedundant(t, r.servers()).redundant()
		for j := range r.nodes {
			if !r.isReady(j) {
				t.Errorf("n%d may go, and n%d is not ready", i, j)
			}
		}
		r.print()
		r.replace(i)
		r.check()
	}
	l.stop()
	waitRedundant(t, r.servers()).redundant()
	l.agrees(r.servers())
	for _, name := range streams[:3] {
		if info := r.stream(name); info == nil || info.State.Msgs == 0 {
			t.Errorf("%s is lost: %+v", name, info)
		}
	}
}
