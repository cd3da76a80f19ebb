package collector

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/leafbus/leafbus/internal/testkit"
)

const mib = 1 << 20

func TestPercent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		live, roots, floor uint64
		percent            int
	}{
		"a generator at rest":              {5 * mib, 2 * mib, 32 * mib, 385},
		"half of the floor":                {16 * mib, 0, 32 * mib, 100},
		"more than the floor":              {33 * mib, 2 * mib, 32 * mib, 100},
		"hardly anything":                  {1 * mib, 1 * mib, 32 * mib, 800},
		"nothing, before the first one":    {0, 0, 32 * mib, 100},
		"a container of 64 MiB":            {5 * mib, 2 * mib, 8 * mib, 100},
		"a container with hardly anything": {5 * mib, 2 * mib, 0, 100},
	} {
		if got := percentFor(c.live, c.roots, c.floor); got != c.percent {
			t.Errorf("%s: %d, want %d", name, got, c.percent)
		}
		// Where the bounds of the percentage allow it, the next collection is at the floor; it is never above both rules.
		next := c.live + (c.live+c.roots)*uint64(percentFor(c.live, c.roots, c.floor))/100
		if next > max(c.floor, 2*c.live+c.roots) {
			t.Errorf("%s: the next collection is at %d MiB", name, next/mib)
		}
	}
}

func TestChosen(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]bool{"GOGC=": false, "GOMEMLIMIT=": false, "GOGC=100": true, "GOGC=off": true, "GOMEMLIMIT=64MiB": true} {
		name, value, _ := strings.Cut(set, "=")
		if got := chosen(func(of string) string { return map[string]string{name: value}[of] }); got != want {
			t.Errorf("%s: %t", set, got)
		}
	}
}

func TestContainerLimit(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for name, c := range map[string]struct {
		files fstest.MapFS
		limit uint64
	}{
		"another system": {nil, math.MaxUint64},
		"a container": {fstest.MapFS{
			"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("67108864\n"),
		}, 64 * mib},
		"no limit": {fstest.MapFS{
			"proc/self/cgroup": file("0::/a\n"), "sys/fs/cgroup/a/memory.max": file("max\n"),
		}, math.MaxUint64},
		"its own limit": {fstest.MapFS{
			"proc/self/cgroup": file("0::/a/b\n"), "sys/fs/cgroup/a/b/memory.max": file("500\n"), "sys/fs/cgroup/a/memory.max": file("2000\n"),
		}, 500},
		"version 1": {fstest.MapFS{
			"proc/self/cgroup": file("9:name=systemd:/x\n4:memory:/a\n3:cpuset:/\n0::/\n"),
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes":   file("3000\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     file("9223372036854771712\n"),
			"sys/fs/cgroup/cpuset/memory.limit_in_bytes":     file("1\n"),
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes":   file("1\n"),
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": file("1\n"),
		}, 3000},
		"out of the namespace": {fstest.MapFS{"proc/self/cgroup": file("0::/../../x\n"), "sys/fs/cgroup/memory.max": file("5000\n")}, 5000},
		"unreadable":           {fstest.MapFS{"proc/self/cgroup": file("\nx\n::\n0::\n0:memory\n")}, math.MaxUint64},
	} {
		if got := containerLimit(c.files); got != c.limit {
			t.Errorf("%s: %d, want %d", name, got, c.limit)
		}
	}
}

// The percentage follows what is live: up to the usual one when it has grown, and back. It changes the whole process.
func TestFollow(t *testing.T) {
	before := debug.SetGCPercent(usual) // another one if the environment has GOGC
	t.Cleanup(func() { debug.SetGCPercent(before) })
	percent := func() int {
		runtime.GC()
		now := debug.SetGCPercent(usual)
		debug.SetGCPercent(now)
		return now
	}
	follower := &tuner{floor: floor, percent: usual, rest: time.AfterFunc(restAfter, release)}
	runtime.GC()
	follower.follow()
	testkit.Eventually(t, "a large percentage for a small heap", func() bool { return percent() > 2*usual })
	kept := make([]byte, 2*floor)
	testkit.Eventually(t, "the usual percentage for a large heap", func() bool { return percent() == usual })
	runtime.KeepAlive(kept)
	kept = nil
	testkit.Eventually(t, "a large percentage again", func() bool { return percent() > 2*usual })
}

// A program that kept much for a moment does not keep the memory. One at rest does not collect for little.
func TestRelease(t *testing.T) {
	resident := func() uint64 {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/free:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	passing := make([]byte, 8*floor)
	for i := range passing {
		passing[i] = 1
	}
	runtime.KeepAlive(passing)
	runtime.GC()
	testkit.Eventually(t, "what was kept for a moment is free", func() bool { return resident() > 4*floor })
	release()
	if free := resident(); free > 2*floor {
		t.Errorf("%d MiB are free, and kept", free/mib)
	}
	if muchUnused(floor, 0) || muchUnused(20*floor, 100*floor) {
		t.Error("a collection for little")
	}
}
