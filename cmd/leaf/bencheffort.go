package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leafbus/leafbus/snowflake"
)

// How often the way to NATS is measured: before the load, and under it.
const (
	idlePings = 5
	pingEvery = 50 * time.Millisecond
)

// effort is what a load cost this process.
type effort struct {
	// busy is how long threads ran or waited for a processor, as a share of the time
	// of all processors that this process may use: above 1 if more threads want to run.
	busy float64
	// adding is the share of the callers' time that went into the check for repeated IDs.
	adding float64
	// idle is the median of how long a PING to NATS took before the load, and loaded
	// that under it; 0: not known. No generator sees a PING.
	idle, loaded time.Duration
}

// measureEffort begins to measure a load that begins now. Call stop when the load has ended.
func measureEffort(nc *nats.Conn) (stop func() effort) {
	var idle, loaded []time.Duration
	ping := func(times *[]time.Duration) {
		// RTT is how long the server takes to answer a PING behind all that this process has sent.
		if d, err := nc.RTT(); err == nil {
			*times = append(*times, d)
		}
	}
	for range idlePings {
		ping(&idle)
	}
	begin, cpu := time.Now(), cpuTime()+cpuWait()
	ended := every(pingEvery, func() { ping(&loaded) })
	return func() effort {
		used := cpuTime() + cpuWait() - cpu
		busy := used.Seconds() / time.Since(begin).Seconds() / float64(runtime.GOMAXPROCS(0))
		ended()
		return effort{busy: busy, idle: snowflake.Median(idle), loaded: snowflake.Median(loaded)}
	}
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
