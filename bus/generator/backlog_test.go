package generator

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
)

// crowded is a NATS with generators of one service, or of two, in virtual time. Each ms it passes on the requests that
// came, and each generator answers some.
type crowded struct {
	generators []*crowdedGenerator
	rate       [2]int        // requests a ms, by service
	refused    [2]int        // because no generator took them
	oldest     time.Duration // of the answers
	most       int           // requests that waited in a generator
}

// crowdedGenerator answers requests and passes probes in the order in which they came.
type crowdedGenerator struct {
	*backlog
	ticks    chan time.Time
	perMS    int // requests that it answers in a ms
	frozen   bool
	blocked  bool // another subscription holds probes up
	silent   bool // NATS hangs: nothing comes
	queue    []arrival
	limited  [2]bool // which services have a limit
	waiting  [2]int  // requests in the queue, by service
	answered int
}

// arrival is a number of requests that came together, or a probe.
type arrival struct {
	service, n int
	came       time.Time
	probe      chan struct{}
}

// newCrowded returns a NATS with generators that answer so many requests a ms, until the test ends. It must be called in a bubble.
func newCrowded(t *testing.T, perMS ...int) *crowded {
	c := new(crowded)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	for _, n := range perMS {
		g := &crowdedGenerator{ticks: make(chan time.Time), perMS: n}
		g.backlog = &backlog{log: testkit.Quiet, services: []*issuer{{}, {}}, limitable: func(*issuer) bool { return true }, refused: new(atomic.Bool), overloads: new(atomic.Int64)}
		g.step = func(context.Context) {
			for i, s := range g.services {
				g.limited[i] = s.crowd.limited.Load()
			}
		}
		g.probe = func(context.Context) <-chan struct{} {
			back := make(chan struct{})
			g.queue = append(g.queue, arrival{probe: back})
			return back
		}
		c.generators = append(c.generators, g)
		go g.run(ctx, g.ticks)
	}
	return c
}

// pass lets so much time pass.
func (c *crowded) pass(d time.Duration) {
	for range d / ms {
		for service, n := range c.rate {
			c.send(service, n)
		}
		for _, g := range c.generators {
			c.oldest = max(c.oldest, g.work())
			c.most = max(c.most, g.waiting[0]+g.waiting[1])
			if now := time.Now(); !g.frozen && now.Sub(time.Unix(0, 0))%tickEvery == 0 {
				select {
				case g.ticks <- now:
				default:
				}
			}
		}
		time.Sleep(ms)
		synctest.Wait()
	}
}

// send sends requests, which NATS divides among the generators that take some.
func (c *crowded) send(service, n int) {
	for n > 0 {
		var in []*crowdedGenerator
		for _, g := range c.generators {
			if g.room(service) > 0 {
				in = append(in, g)
			}
		}
		if len(in) == 0 {
			c.refused[service] += n
			return
		}
		for i, g := range in {
			share := min((n+i)/(len(in)-i), g.room(service))
			if share == 0 {
				continue
			}
			n -= share
			g.queue = append(g.queue, arrival{service: service, n: share, came: time.Now()})
			g.waiting[service] += share
		}
	}
}

// room is how many requests more NATS may pass on.
func (g *crowdedGenerator) room(service int) int {
	if !g.limited[service] {
		return math.MaxInt
	}
	return int(g.services[service].crowd.window.Load()) - g.waiting[service]
}

// work answers the requests of a ms, and returns the age of the oldest one.
func (g *crowdedGenerator) work() (oldest time.Duration) {
	left := g.perMS
	for !g.frozen && !g.silent && len(g.queue) > 0 {
		a := &g.queue[0]
		switch {
		case a.probe == nil && left == 0:
			return oldest
		case a.probe == nil:
			n := min(left, a.n)
			left, a.n = left-n, a.n-n
			g.answered += n
			g.waiting[a.service] -= n
			g.services[a.service].crowd.read.Add(int64(n))
			oldest = max(oldest, time.Since(a.came))
			if a.n > 0 {
				return oldest
			}
		case g.blocked:
			g.queue = append(g.queue[1:], *a)
			if len(g.queue) == 1 || g.queue[0].probe != nil {
				return oldest
			}
			continue
		default:
			close(a.probe)
		}
		g.queue = g.queue[1:]
	}
	return oldest
}

// reset forgets what was counted.
func (c *crowded) reset() {
	c.refused, c.oldest, c.most = [2]int{}, 0, 0
	for _, g := range c.generators {
		g.answered = 0
	}
}

// answered is how many requests were answered.
func (c *crowded) answered() (n int) {
	for _, g := range c.generators {
		n += g.answered
	}
	return n
}

// In an overload nearly all of the capacity makes answers, and they come in time. The backlog is bounded, and soon after the
// overload all requests are answered again.
func TestOverloadOfAnyRate(t *testing.T) {
	t.Parallel()
	for _, rate := range []int{55, 75, 100, 150, 250, 500} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowded(t, 50)
			c.rate[0] = 25
			c.pass(time.Second)
			c.rate[0] = rate
			c.pass(3 * time.Second)
			begun := c.oldest // what came before the limit
			c.reset()
			c.pass(3 * time.Second)
			if c.answered() < 99*3*50*10 || c.oldest > 200*ms || c.most > 10_000 || begun > 2*time.Second {
				t.Errorf("of %d a ms %d were answered in 3 s; the oldest was %v old, at the start %v; %d waited at most",
					rate, c.answered(), c.oldest, begun, c.most)
			}
			if n := c.generators[0].overloads.Load(); n < 10 {
				t.Errorf("%d overloads were counted", n)
			}
			c.rate[0] = 25
			c.pass(500 * ms)
			c.reset()
			c.pass(10 * time.Second)
			if c.refused[0] > 0 || c.oldest > 2*ms || c.generators[0].limited[0] {
				t.Errorf("after %d a ms %d were refused; the oldest was %v old", rate, c.refused[0], c.oldest)
			}
		})
	}
}

// A generator whose requests take long has a limit as long as the overload lasts, though few requests wait then.
func TestOverloadOfASlowGenerator(t *testing.T) {
	t.Parallel()
	for _, rate := range []int{3, 10, 50} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowded(t, 2)
			c.rate[0] = rate
			c.pass(12 * time.Second) // until what came before the limit is answered
			c.reset()
			c.pass(20 * time.Second)
			if c.answered() < 99*20*2*10 || c.oldest > 300*ms || c.most > fewRequests {
				t.Errorf("of %d a ms %d were answered in 20 s; the oldest was %v old; %d waited at most", rate, c.answered(), c.oldest, c.most)
			}
		})
	}
}

// A generator that becomes slower, or faster again, in an overload uses all of its time and lets no request wait long.
func TestOverloadWhileCapacityChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowded(t, 50)
		c.rate[0] = 200
		c.pass(3 * time.Second)
		for _, perMS := range []int{10, 80, 20, 50} {
			c.generators[0].perMS = perMS
			c.pass(3 * time.Second)
			c.reset()
			c.pass(2 * time.Second)
			if c.answered() < 2000*perMS*95/100 || c.oldest > 300*ms {
				t.Errorf("at %d a ms %d were answered, the oldest was %v old", perMS, c.answered(), c.oldest)
			}
		}
	})
}

// Below capacity no request is refused: not in a burst, and not after the process stood still.
func TestNoOverload(t *testing.T) {
	t.Parallel()
	for name, load := range map[string]func(c *crowded){
		"95 % of the capacity": func(c *crowded) { c.rate[0] = 47 },
		"a burst, then silence": func(c *crowded) {
			c.send(0, 10_000)
			c.pass(ms)
			c.rate[0] = 0
		},
		"bursts": func(c *crowded) {
			for range 10 {
				c.send(0, 4000)
				c.pass(200 * ms)
			}
		},
		"a pause of the process": func(c *crowded) {
			c.rate[0] = 35
			c.generators[0].frozen = true
			c.pass(400 * ms)
			c.generators[0].frozen = false
		},
		"few requests on a slow machine": func(c *crowded) {
			c.generators[0].perMS, c.rate[0] = 1, 0
			for range 5 { // some still wait when the next ones come
				c.send(0, 400)
				c.pass(380 * ms)
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowded(t, 50)
			c.rate[0] = 20
			c.pass(time.Second)
			load(c)
			c.pass(5 * time.Second)
			sudden := map[string]int64{"a burst, then silence": 1}[name] // it looks like an overload at first
			if n := c.generators[0].overloads.Load(); c.refused[0] > 0 || n > sudden {
				t.Errorf("%s: %d requests were refused, %d overloads were counted", name, c.refused[0], n)
			}
		})
	}
}

// Generators that leave in turn take load from each other and do no harm. While together they can answer all, no request is refused.
func TestOverloadOfSeveralGenerators(t *testing.T) {
	t.Parallel()
	for _, rate := range []int{110, 135, 180, 300, 750} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowded(t, 100, 50) // NATS gives both as much
			c.rate[0] = 50
			c.pass(time.Second)
			c.rate[0] = rate
			c.pass(4 * time.Second)
			c.reset()
			c.pass(5 * time.Second)
			if want := min(rate, 150) * 5000 * 95 / 100; c.answered() < want || c.oldest > 500*ms {
				t.Errorf("of %d a ms %d were answered, want %d; the oldest was %v old", rate, c.answered(), want, c.oldest)
			}
			if rate < 150*9/10 && c.refused[0] > 0 {
				t.Errorf("of %d a ms %d were refused", rate, c.refused[0])
			}
		})
	}
}

// The service that has the load leaves. The other one stays, unless it has too much too.
func TestOverloadOfOneService(t *testing.T) {
	t.Parallel()
	for other, refused := range map[int]bool{3: false, 80: true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowded(t, 50)
			c.rate = [2]int{150, other}
			c.pass(2 * time.Second)
			c.most = 0
			c.pass(5 * time.Second)
			if c.refused[0] == 0 || c.refused[1] > 0 != refused || c.most > 12_000 {
				t.Errorf("150 and %d a ms: %d were refused, %d waited at most", other, c.refused, c.most)
			}
		})
	}
}

// Probes that wait behind other messages, for example the records of a million tags, do not make it refuse requests.
func TestHeldUpProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowded(t, 50)
		c.rate[0] = 40
		c.pass(time.Second)
		c.generators[0].blocked = true
		c.pass(8 * time.Second)
		if c.refused[0] > 0 {
			t.Errorf("%d were refused", c.refused[0])
		}
		c.generators[0].blocked = false
		c.pass(2 * calm)
		c.reset()
		c.pass(time.Second)
		if c.refused[0] > 0 || c.generators[0].limited[0] {
			t.Errorf("later %d were refused", c.refused[0])
		}
	})
}

// While NATS hangs, no subscription is changed: nats.go might lose it.
func TestOverloadWhileNATSHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowded(t, 50)
		c.rate[0] = 60
		c.pass(600 * ms)
		for sent := c.generators[0].sent; c.generators[0].sent == sent || time.Since(c.generators[0].sent) < 30*ms; {
			c.pass(ms) // until a probe is under way, and much has been read since
		}
		c.generators[0].silent = true
		c.pass(3 * time.Second)
		if c.refused[0] > 0 {
			t.Errorf("%d were refused", c.refused[0])
		}
		c.generators[0].silent = false // what came meanwhile is a backlog
		c.pass(time.Second)
		if c.refused[0] == 0 {
			t.Error("none is refused afterwards")
		}
	})
}

// Probes that were held up do not make a later overload last.
func TestOverloadAfterHeldUpProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowded(t, 50)
		c.rate[0] = 40
		c.generators[0].blocked = true
		c.pass(12 * time.Second)
		c.generators[0].blocked = false
		c.rate[0] = 100
		c.pass(15 * time.Second)
		c.reset()
		c.pass(3 * time.Second)
		if c.oldest > 200*ms || c.answered() < 3000*50*99/100 {
			t.Errorf("requests wait for %v, %d were answered", c.oldest, c.answered())
		}
	})
}

// A process that may use a fifth of a processor stands still in each period. That does not hide an overload.
func TestOverloadOfAThrottledProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowded(t, 50)
		c.rate[0] = 30
		for range 60 {
			c.generators[0].frozen = true
			c.pass(80 * ms)
			c.generators[0].frozen = false
			c.pass(20 * ms)
		}
		if c.refused[0] == 0 || c.most > 10_000 {
			t.Errorf("%d were refused, %d waited at most", c.refused[0], c.most)
		}
	})
}

// An overload counts as long as it lasts, also if no service may have a limit, and if requests wait so long that all probes are lost.
func TestOverloadWithoutLimitCounts(t *testing.T) {
	t.Parallel()
	for _, rate := range []int{55, 75, 100, 500} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowded(t, 50)
			g := c.generators[0]
			g.limitable = func(*issuer) bool { return false }
			c.rate[0] = rate
			c.pass(10 * time.Second)
			for range 2 {
				before := g.overloads.Load()
				c.pass(30 * time.Second)
				if n := g.overloads.Load() - before; n < 5 { // the alert LeafOverloaded needs 0.15 a second
					t.Errorf("of %d a ms %d overloads were counted in 30 s", rate, n)
				}
			}
			if c.refused[0] > 0 || c.most < 50_000 {
				t.Errorf("%d were refused, %d waited at most", c.refused[0], c.most)
			}
		})
	}
}

// Batches of opaque tags that are refused are an overload, although no request waits for the probes. Each probe counts it once.
func TestRefusedBatchesCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrowded(t, 50)
		g := c.generators[0]
		c.rate[0] = 5
		for range 20 {
			g.refused.Store(true)
			c.pass(time.Second)
		}
		if n := g.overloads.Load(); n != 20 || c.refused[0] > 0 {
			t.Errorf("%d overloads were counted, %d requests were refused", n, c.refused[0])
		}
	})
}
