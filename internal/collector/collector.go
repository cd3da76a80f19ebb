// Package collector makes Go's garbage collector run less often in a program that keeps little in
// memory.
package collector

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// ballastSize is how much, in bytes, the collector takes for kept in addition to what is. It
	// collects when the heap has doubled: a generator keeps about 5 MB, so under load it would
	// every few milliseconds, for a fifth of its processor time and most of its p99. With this
	// ballast it collects at 34 MB, which saves three quarters of that. More saves little.
	ballastSize = 24 << 20
	// share of the memory limit of the container that the ballast is at most: so much less is left
	// for what is kept.
	share = 8
	// restAfter is how long no collection may run until memory that is not used goes back to the
	// system. A start with a million tags leaves as much garbage as it keeps, and then no
	// collection comes for long.
	restAfter = time.Minute
)

var (
	once    sync.Once
	ballast []byte // nothing writes to it, so the system gives no memory for it
)

// Tune makes the collector run later if little is kept. If the environment has GOGC or GOMEMLIMIT,
// it changes nothing. It is for the whole process: for programs, not for libraries. Only the first
// call counts.
func Tune() {
	once.Do(func() {
		if chosen(os.Getenv) {
			return
		}
		ballast = make([]byte, min(ballastSize, containerLimit(os.DirFS("/"))/share))
		go func() {
			cycles := uint64(0)
			for range time.Tick(restAfter) {
				cycles = release(cycles)
			}
		}()
	})
}

// chosen reports whether an operator chose how often the collector runs.
func chosen(getenv func(string) string) bool {
	return getenv("GOGC") != "" || getenv("GOMEMLIMIT") != ""
}

// release gives memory back to the system if much of it is not used, and no collection came since
// the last look. It returns how many there were.
func release(before uint64) (cycles uint64) {
	samples := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	cycles = samples[0].Value.Uint64()
	if cycles == before && muchUnused(samples[1].Value.Uint64(), samples[2].Value.Uint64()) {
		debug.FreeOSMemory() // it collects first, for which the program need not stop
	}
	return cycles
}

// muchUnused reports whether what is free is worth a collection: a quarter of what is live, and
// more than a program at rest needs.
func muchUnused(free, live uint64) bool { return free > max(live/4, 2*ballastSize) }
