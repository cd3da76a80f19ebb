// Package collector makes Go's garbage collector run less often in a program that keeps little in memory.
package collector

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// floor is the heap, in bytes, at which a program with little in memory collects. A generator keeps
	// about 5 MB. With Go's default it collects at 10 MB: under load every few milliseconds, for a fifth of its
	// processor time and most of its p99. With 32 MiB three quarters of that are saved. More saves little.
	floor = 32 << 20
	// share of the memory limit of the container that the floor is at most. So a program that runs within its
	// limit without a floor still does.
	share = 8
	// usual is Go's default: collect when the heap has doubled.
	usual = 100
	// most bounds what the heap can grow to if what is live grows at once, before the percentage follows.
	most = 800
	// restAfter is how long no collection may run until memory that is not used goes back to the system. A start with a
	// million tags leaves as much garbage as it keeps, and then no collection comes for long.
	restAfter = time.Minute
)

// Tune makes the collector run when the heap has doubled, but not below 32 MiB or an eighth of the memory limit
// of the container. If the environment has GOGC or GOMEMLIMIT, it changes nothing. It is for the whole process:
// for programs, not for libraries. Only the first call counts.
func Tune() {
	once.Do(func() {
		if !chosen(os.Getenv) {
			(&tuner{floor: min(floor, containerLimit(os.DirFS("/"))/share), percent: usual,
				rest: time.AfterFunc(restAfter, release)}).follow()
		}
	})
}

var once sync.Once

// chosen reports whether an operator chose how often the collector runs.
func chosen(getenv func(string) string) bool {
	return getenv("GOGC") != "" || getenv("GOMEMLIMIT") != ""
}

// percentFor is how much, in percent, the heap may grow until the next collection, so that this begins at twice
// what is live, but not below floor. The runtime adds the percentage of live and of roots to live.
func percentFor(live, roots, floor uint64) int {
	if live+roots == 0 || live >= floor {
		return usual
	}
	return int(min(max((floor-live)*100/(live+roots), usual), most))
}

// tuner changes the percentage when what is live has changed.
type tuner struct {
	floor   uint64
	percent int
	rest    *time.Timer // restAfter the last collection
}

// follow sets the percentage now and after each collection.
func (t *tuner) follow() {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"},
		{Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	percent := percentFor(samples[0].Value.Uint64(), samples[1].Value.Uint64()+samples[2].Value.Uint64(), t.floor)
	if change := percent - t.percent; change*change > t.percent*t.percent/100 || percent == usual && change != 0 {
		debug.SetGCPercent(percent) // stops the program for a moment, so not for a change of a tenth
		t.percent = percent
	}
	t.rest.Reset(restAfter)
	// A collection finds the cycle dead. It has a pointer, because objects without one may share their memory.
	runtime.AddCleanup(&cycle{}, (*tuner).follow, t)
}

type cycle struct{ _ *cycle }

// release gives memory back to the system if much of it is not used.
func release() {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	if muchUnused(samples[0].Value.Uint64(), samples[1].Value.Uint64()) {
		debug.FreeOSMemory() // it collects first, for which the program need not stop
	}
}

// muchUnused reports whether what is free is worth a collection: a quarter of what is live, and more than a program at
// rest needs.
func muchUnused(free, live uint64) bool { return free > max(live/4, 2*floor) }
