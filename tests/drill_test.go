//go:build drills

package tests

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/bus"
)

// A drill attacks real processes for as long as that needs, often a minute. Drills
// assert safety: no ID twice, order, nothing lost. They print times and assert none.
// They stand in files with the build tag drills, and `make drills` runs them.

// probeDeadline is the deadline of the caller that measures the longest time without an answer.
const probeDeadline = 500 * time.Millisecond

// probe is a caller that sends one request after the other, each with a deadline of
// 500 ms, and measures the longest time without an answer.
type probe struct {
	t       *testing.T
	what    string
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	longest time.Duration
	answers int
	failed  int
}

// startProbe asks the subject until the probe is stopped.
func startProbe(t *testing.T, nc *nats.Conn, subject string) *probe {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &probe{t: t, what: subject, cancel: cancel}
	p.wg.Go(func() {
		last := time.Now()
		for ctx.Err() == nil {
			attempt, cancel := context.WithTimeout(ctx, probeDeadline)
			msg, err := nc.RequestWithContext(attempt, subject, nil)
			if err == nil && len(msg.Header) == 0 {
				p.answers++
				p.longest = max(p.longest, time.Since(last))
				last = time.Now()
			} else if ctx.Err() == nil {
				p.failed++
				<-attempt.Done() // a refusal comes at once: do not ask in a tight loop
			}
			cancel()
		}
		p.longest = max(p.longest, time.Since(last))
	})
	t.Cleanup(p.end)
	return p
}

func (p *probe) end() {
	p.cancel()
	p.wg.Wait()
}

// stop ends the probe and prints what it measured.
func (p *probe) stop() {
	p.t.Helper()
	p.end()
	p.t.Logf("%s: %d answers, %d requests failed within %v, longest time without an answer %v",
		p.what, p.answers, p.failed, probeDeadline, p.longest.Round(time.Millisecond))
	if p.answers == 0 {
		p.t.Errorf("%s: no answer ever came", p.what)
	}
}

// Three generators, joined to one NATS, are killed and frozen in turn under load.
func TestDrillKillAndFreeze(t *testing.T) {
	server := newNATS(t)
	url := server.ClientURL()
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	var generators []*generator
	for _, dir := range dirs {
		generators = append(generators, serve(t, dir, "-s", url, "--tag", "order:200"))
	}
	segments := startProbe(t, connect(t, url), bus.SubjectSegment+".order")
	snowflakes := startProbe(t, connect(t, url), bus.SubjectSnowflake)
	var loads []*load
	for _, tag := range []string{"order", ""} {
		loads = append(loads, startLoad(t, loadConfig{
			tag: tag, callers: 2, maxBatch: 1000, patience: time.Second, mayGiveUp: true,
			expected: []bus.Reason{bus.NoWorkerID},
		}, url))
	}
	more := func(replies int64) {
		for _, l := range loads {
			l.more(replies)
		}
	}
	for i := range generators {
		more(500)
		generators[i].kill()
		more(500)
		generators[i] = serve(t, dirs[i], "-s", url)
	}
	for _, g := range generators {
		more(500)
		g.freeze()
		more(20) // NATS still gives a third of the requests to it
		g.signal(syscall.SIGCONT)
	}
	more(500)
	segments.stop()
	snowflakes.stop()
	for _, l := range loads {
		l.stop()
		l.agrees(url)
	}
}
