package allocator_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestSimulation attacks the claim that no ID of a tag comes twice. Each seed is a world: a few generators
// on a store that loses answers, is slow and goes back to older states, once, again, or for one generator
// after the other; a ledger that loses answers, is away, and has writes that land late; reports that come
// late or never; crashes, lost folders and operators. In some worlds the ledger goes back too, or there is
// none. When the faults end, everybody is served.
//
// Not in it: IDs may repeat that both store and ledger have forgotten, if some generator does not know them.
//
// The faults follow from the seed. The pauses of the allocators are random beside it, so a world is replayed
// until it fails again. LEAF_TEST_SEED replays one; LEAF_TEST_WORLDS says how many to try. With the race
// detector there are few, because each takes ten times as long.
func TestSimulation(t *testing.T) {
	if s := os.Getenv("LEAF_TEST_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("LEAF_TEST_SEED: %v", err)
		}
		replay(t, seed)
		return
	}
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
	t.Run("worlds", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for n := tried.Add(1); n <= worlds && !t.Failed(); n = tried.Add(1) {
					w := simulate(t, first+n, nil)
					if w.err != nil {
						t.Errorf("%v\n%v\nin world %d of these; to see all that happened:\nLEAF_TEST_SEED=%d go test ./allocator -run TestSimulation -v", w.err, w, n, first+n)
					}
					mu.Lock()
					for what, n := range w.happened {
						happened[what] += n
					}
					mu.Unlock()
				}
			})
		}
	})
	t.Logf("%d worlds from seed %d: %v", worlds, first+1, happened)
	if t.Failed() || worlds < enough {
		return
	}
	for _, what := range slices.SortedFunc(maps.Keys(happening), cmp.Compare) {
		if got, least := happened[what], happening[what]; got < least {
			t.Errorf("of %q there were %d in all worlds, want %d or more: the simulation does too little", what, got, least)
		}
	}
}

// simulate runs the world of a seed.
func simulate(t *testing.T, seed uint64, trace func(string, ...any)) (w *simWorld) {
	dir := t.TempDir()
	synctest.Test(t, func(*testing.T) {
		w = newSimWorld(seed, dir, trace)
		w.err = w.run()
	})
	return w
}

// replay runs one world until it fails, and prints what happened in it then.
func replay(t *testing.T, seed uint64) {
	var w *simWorld
	for range 200 {
		var lines []string
		var mu sync.Mutex
		w = simulate(t, seed, func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, fmt.Sprintf(format, args...))
		})
		if w.err != nil {
			for _, line := range lines {
				t.Log(line)
			}
			t.Error(w.err)
			return
		}
	}
	t.Logf("the world of seed %d did not fail; %v", seed, w)
}

// enough worlds show that the simulation does what it must.
const enough = 3000

// happening is what must happen, and how often in all worlds together, for the simulation to prove anything.
var happening = map[string]int64{
	"IDs":                      10_000_000,
	"alert, advanced":          2000,
	"alert, refused":           150,
	"answer lost":              3000,
	"request lost":             4000,
	"landed late":              4000,
	"conflict":                 1000,
	"old entry":                2000,
	"store away":               400,
	"ledger away":              400,
	"crashed":                  2000,
	"cut":                      500,
	"store restored":           2000,
	"split":                    400,
	"created again by SQL":     300,
	"deleted by SQL":           100,
	"ledger restored":          100,
	"forgotten":                200,
	"forgotten, but known":     200,
	"repeated, as nobody knew": 500, // the checks see what repeats
	"refused":                  1000,
	"refused, regressed":       1000,
	"max_id set":               400,
	"deleted":                  200,
	"created":                  200,
	"uncertain command":        400,
}
