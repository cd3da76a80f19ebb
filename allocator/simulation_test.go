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

// TestSimulation attacks the claims that no ID of a tag comes twice, that IDs of a strict tag are in the order of
// requests, and that no ID comes below what an operator was promised. Each seed is a world: three generators on
// records and, in most worlds, a database; messages that are late or lost, servers that are behind, generators that
// stand still, are cut off and crash, operators, SQL by hand. In some worlds the database goes back, or there are two
// that both accept writes, or the records are lost, damaged or restored, or both stores go back far apart. When the
// faults end, everybody is served.
//
// The allocators are the real ones. What a generator does around them is modelled: heartbeats, the gate of one that
// was away, pushes and the confirmations of commands.
//
// Not in it: IDs may repeat that both stores have forgotten, or the records alone where there is no database.
//
// The faults follow from the seed. The pauses of the allocators are random beside it, so a world is replayed
// until it fails again. LEAF_TEST_SEED replays one; LEAF_TEST_WORLDS says how many to try. With the race
// detector there are few, because each takes ten times as long.
func TestSimulation(t *testing.T) {
	if seed := simEnv(t, "LEAF_TEST_SEED", 0); seed != 0 {
		replay(t, seed)
		return
	}
	worlds := simEnv(t, "LEAF_TEST_WORLDS", usual)
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
						t.Errorf("%v\n%v\nin world %d of these; to see all that happened:\n"+
							"LEAF_TEST_SEED=%d go test ./allocator -run TestSimulation -v", w.err, w, n, first+n)
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
			t.Errorf("of %q there were %d in all worlds, want %d or more: the simulation does too little", what, got,
				least)
		}
	}
}

// simEnv returns a number of the environment.
func simEnv(t *testing.T, name string, otherwise uint64) uint64 {
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// simulate runs the world of a seed.
func simulate(t *testing.T, seed uint64, trace func(string, ...any)) (w *simWorld) {
	synctest.Test(t, func(*testing.T) {
		w = newSimWorld(seed, trace)
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
const enough = 2000

// happening is what must happen, and how often in all worlds together, for the simulation to prove anything.
var happening = map[string]int64{
	"IDs": 20_000_000, "away": 5000, "stale": 3000, "frozen": 6000,
	"cut": 6000, "crashed": 3000, "late": 20_000, "no answer": 40_000,
	"old record": 5000, "conflict": 100_000, "the watch lags": 20_000, "row raised": 1000,
	"database restored": 300, "records restored": 300, "records lost": 50, "record damaged": 70,
	"deleted by SQL": 600, "inserted by SQL": 400, "command set": 3000, "command delete": 1500,
	"command create": 1400, "uncertain command": 150, "named": 1000, "silent": 200,
	"passed on": 50_000, "repeated, as nobody knew": 1,
}
