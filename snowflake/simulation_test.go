//go:build !race

package snowflake_test

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// TestSimulation attacks the claim that no two IDs are ever equal. Each seed is
// a world: a few generators and fewer workers, clocks that are wrong by hours
// and jump, processes that freeze, are killed and lose power in the middle of
// anything, folders that are copied, damaged and lost, and a registry that goes
// away, loses answers and writes late. All that happens follows from the seed,
// on one goroutine at a time and in virtual time. The folder of a process that stands still for more than a
// second may be started elsewhere, on the same volume or an image of it. When the faults end, everybody
// is served.
//
// Not in it: a registry that is wiped or restored, a machine that is cloned while
// it runs, and two processes that run on one folder, which its lock keeps apart. Goroutines
// of a process take turns only where they ask others, write or look at claims.
//
// LEAF_TEST_SEED replays one world and tells what happens in it;
// LEAF_TEST_WORLDS says how many to try.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if s := os.Getenv("LEAF_TEST_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("LEAF_TEST_SEED: %v", err)
		}
		w := newSimWorld(seed)
		w.trace = t.Logf
		if err := w.run(); err != nil {
			t.Error(err)
		}
		return
	}
	const usual = 5000
	worlds := uint64(usual)
	if s := os.Getenv("LEAF_TEST_WORLDS"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("LEAF_TEST_WORLDS: %v", err)
		}
		worlds = n
	}
	first := uint64(rand.Uint32())
	var tried atomic.Uint64
	var mu sync.Mutex
	happened := make(map[string]int64)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !t.Failed() {
				n := tried.Add(1)
				if n > worlds {
					return
				}
				seed := first + n
				w := newSimWorld(seed)
				if err := w.run(); err != nil {
					t.Errorf("%v\nin world %d of these; to see all that happened:\nLEAF_TEST_SEED=%d go test ./snowflake -run TestSimulation -v", err, n, seed)
				}
				mu.Lock()
				for what, n := range w.happened {
					happened[what] += n
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("%d worlds from seed %d: %v", worlds, first+1, happened)
	if t.Failed() || worlds < usual {
		return
	}
	for _, what := range slices.SortedFunc(maps.Keys(happening), cmp.Compare) {
		if got, least := happened[what], happening[what]; got < least {
			t.Errorf("of %q there were %d in all worlds, want %d or more: the simulation does too little", what, got, least)
		}
	}
}

// happening is what must happen, and how often in all worlds together, for the
// simulation to prove anything.
var happening = map[string]int64{
	"IDs":                       2_000_000,
	"taken over":                300,
	"added":                     1500,
	"claimed again":             1500,
	"started from the file":     100,
	"start refused, behind":     20,
	"start refused, peers":      200,
	"start waited":              30,
	"worker lost":               20,
	"worker released":           50,
	"reservation expiring":      10,
	"answer lost, done":         200,
	"answer lost, not done":     1000,
	"written late":              200,
	"conflict":                  200,
	"old list":                  100,
	"ceiling met":               1000,
	"reservation's end met":     1000,
	"rested at start":           5,
	"went back, refused":        100,
	"went back, waited":         1,
	"step forward doubted":      150,
	"step forward believed":     30,
	"killed":                    500,
	"power failed":              500,
	"crashed in a write":        500,
	"write failed":              200,
	"slot damaged":              200,
	"stopped":                   500,
	"copied":                    500,
	"folder lost":               20,
	"frozen":                    1000,
	"frozen at a clock":         500,
	"stood still":               1000,
	"moved to another machine":  500,
	"started from an image":     500,
	"not alone in its folder":   100,
	"other things amid a write": 1000,
	"waited and served":         2000,
	"gave up waiting":           1000,
	"served again, a worker":    500,
	"served again, all":         50,
}
