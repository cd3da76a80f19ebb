package generator

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
)

// crowded is a NATS with one generator, in virtual time. Each ms it passes on the requests that came, and the generator
// answers some. It answers requests and passes probes in the order in which they came.
type crowded struct {
	*backlog
	ticks    chan time.Time
	perMS    int // requests that it answers in a ms
	rate     int // requests that come in a ms
	queue    []arrival
	limited  bool
	waiting  int // requests in the queue
	answered int
	refused  int           // because the generator took no more
	oldest   time.Duration // of the answers
	most     int           // requests that waited
}

// arrival is a number of requests that came together, or a probe.
type arrival struct {
	n     int
	came  time.Time
	probe chan struct{}
}

// newCrowded returns a NATS with a generator that answers so many requests a ms, until the test ends. It must be called
// in a bubble.
func newCrowded(t *testing.T, perMS int) *crowded {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	c := &crowded{ticks: make(chan time.Time), perMS: perMS}
	c.backlog = &backlog{
		log: testkit.Quiet, services: []*issuer{{}}, limitable: func(*issuer) bool { return true },
		refused: new(atomic.Bool), overloads: new(atomic.Int64),
		step: func(context.Context) { c.limited = c.services[0].crowd.limited.Load() },
		probe: func(context.Context) <-chan struct{} {
			back := make(chan struct{})
			c.queue = append(c.queue, arrival{probe: back})
			return back
		},
	}
	go c.run(ctx, c.ticks)
	return c
}

// pass lets so much time pass.
func (c *crowded) pass(d time.Duration) {
	for range d / ms {
		n := c.rate
		if c.limited {
			n = min(n, int(c.services[0].crowd.window.Load())-c.waiting)
		}
		if n > 0 {
			c.queue = append(c.queue, arrival{n: n, came: time.Now()})
			c.waiting += n
		}
		c.refused += c.rate - max(n, 0)
		c.work()
		c.most = max(c.most, c.waiting)
		if now := time.Now(); now.Sub(time.Unix(0, 0))%tickEvery == 0 {
			select {
			case c.ticks <- now:
			default:
			}
		}
		time.Sleep(ms)
		synctest.Wait()
	}
}

// work answers the requests of a ms.
func (c *crowded) work() {
	for left := c.perMS; len(c.queue) > 0; c.queue = c.queue[1:] {
		a := &c.queue[0]
		if a.probe != nil {
			close(a.probe)
			continue
		}
		n := min(left, a.n)
		if n == 0 {
			return
		}
		left, a.n = left-n, a.n-n
		c.answered, c.waiting = c.answered+n, c.waiting-n
		c.services[0].crowd.read.Add(int64(n))
		c.oldest = max(c.oldest, time.Since(a.came))
		if a.n > 0 {
			return
		}
	}
}

// reset forgets what was counted.
func (c *crowded) reset() { c.refused, c.oldest, c.most, c.answered = 0, 0, 0, 0 }

// In an overload nearly all of the capacity makes answers, and they come in time. The backlog is bounded, and soon
// after the
// overload all requests are answered again.
func TestOverloadOfAnyRate(t *testing.T) {
	t.Parallel()
	for _, rate := range []int{55, 75, 100, 150, 250, 500} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowded(t, 50)
			c.rate = 25
			c.pass(time.Second)
			c.rate = rate
			c.pass(3 * time.Second)
			begun := c.oldest // what came before the limit
			c.reset()
			c.pass(3 * time.Second)
			if c.answered < 99*3*50*10 || c.oldest > 200*ms || c.most > 10_000 || begun > 2*time.Second {
				t.Errorf("of %d a ms %d were answered in 3 s; the oldest was %v old, at the start %v; %d waited at most",
					rate, c.answered, c.oldest, begun, c.most)
			}
			if n := c.overloads.Load(); n < 10 {
				t.Errorf("%d overloads were counted", n)
			}
			c.rate = 25
			c.pass(500 * ms)
			c.reset()
			c.pass(10 * time.Second)
			if c.refused > 0 || c.oldest > 2*ms || c.limited {
				t.Errorf("after %d a ms %d were refused; the oldest was %v old", rate, c.refused, c.oldest)
			}
		})
	}
}
