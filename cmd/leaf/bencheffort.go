package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/snowflake"
)

// pingEvery is how often the way to NATS is measured under load.
const pingEvery = 50 * time.Millisecond

// effort is what a load cost this process.
type effort struct {
	// busy is how long threads ran or waited for a processor, as a share of the time
	// of all processors that this process may use: above 1 if more threads want to run.
	busy float64
	// adding is the share of the callers' time that went into the check for repeated IDs.
	adding float64
	// idle is how long a PING to NATS took at best before the load, and loaded
	// the median under it; 0: not known. No generator sees a PING.
	idle, loaded time.Duration
}

// meter measures what a load costs this process.
type meter struct {
	loading      atomic.Bool
	idle, loaded []time.Duration // PINGs
	begin        time.Time
	cpu          time.Duration // at begin
	done         chan struct{}
	watching     sync.WaitGroup
}

// newMeter begins with the time before the load.
func newMeter(nc *nats.Conn) *meter {
	m := &meter{done: make(chan struct{})}
	m.watching.Go(func() {
		looks := time.NewTicker(pingEvery)
		defer looks.Stop()
		for {
			d, under := ping(nc), m.loading.Load()
			switch {
			case d == 0:
			case under:
				m.loaded = append(m.loaded, d)
			default:
				m.idle = append(m.idle, d)
			}
			select {
			case <-m.done:
				return
			case <-looks.C:
			}
		}
	})
	return m
}

// start is called when the load begins.
func (m *meter) start() {
	m.loading.Store(true)
	m.begin, m.cpu = time.Now(), cpuTime()+cpuWait()
}

// stop is called when the load has ended.
func (m *meter) stop() effort {
	used := cpuTime() + cpuWait() - m.cpu
	busy := used.Seconds() / time.Since(m.begin).Seconds() / float64(runtime.GOMAXPROCS(0))
	close(m.done)
	m.watching.Wait()
	return effort{busy: busy, idle: snowflake.Median(m.idle), loaded: snowflake.Median(m.loaded)}
}

// ping is how long the server takes to answer a PING behind what was sent and
// is received before; 0: it does not answer.
func ping(nc *nats.Conn) time.Duration {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	begin := time.Now()
	if nc.FlushWithContext(ctx) != nil {
		return 0
	}
	return time.Since(begin)
}

// cpuWait is how long threads of this process have waited for a processor, where the kernel tells.
func cpuWait() (sum time.Duration) {
	threads, _ := filepath.Glob("/proc/self/task/*/schedstat")
	for _, name := range threads {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		var ran, waited time.Duration
		if _, err := fmt.Sscan(string(text), &ran, &waited); err == nil {
			sum += waited
		}
	}
	return sum
}

// Above these, figures are about this process. Measured on 2 cores, with client and generator on both:
//   - busy was 0.61 with 1 caller, 0.77 with 4, 0.99 with 16, 1.0 with 64 and 1,000, 1.4 with 64 and GOMAXPROCS=1;
//     and 0.02 to 0.37 where the generator was the limit (snowflakes by 1,000 and by 100,000, batches beyond a tag's
//     step), 0.74 in a pool that got all snowflakes that a worker can make.
//   - A PING took longer than before the load by 0.7 to 1.1 of the median latency where a proxy slowed the connection,
//     with busy below 0.31, and by less than 0.01 of it where the generator was the limit.
//   - Go's /sched/latencies does not tell: from 16 callers on its mean was 7 % to 23 % of the median latency where the
//     generator shared its processor with other work, and 16 % to 45 % where the client did.
const (
	mostBusy   = 0.9
	mostOnWay  = 0.5
	mostAdding = 0.1
)

// limit says why figures are about this process more than about the installation, for
// a median latency; empty: they are not.
func (e effort) limit(with string, median time.Duration) string {
	switch {
	case e.busy >= mostBusy:
		return fmt.Sprintf("it used its processors or waited for them %.0f %% of the time", min(e.busy, 1)*100)
	case e.adding >= mostAdding:
		return fmt.Sprintf("callers spent %.0f %% of the time on the check for repeated IDs", e.adding*100)
	// One connection is read by one goroutine, however many processors there are. A pool's callers do not wait for it.
	case with != withPool && e.idle > 0 && float64(e.loaded-e.idle) >= mostOnWay*float64(median):
		return fmt.Sprintf("the way to NATS and back, where no generator is, took %s, and %s before the load",
			short(e.loaded), short(e.idle))
	}
	return ""
}
