package collector

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/leafbus/leafbus/internal/testkit"
)

const mib = 1 << 20

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

// A program that keeps little collects at twice the ballast, which takes no memory. It changes the whole process.
func TestTune(t *testing.T) {
	read := func(name string) uint64 {
		sample := []metrics.Sample{{Name: name}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	before := debug.SetGCPercent(100) // another one if the environment has GOGC
	t.Cleanup(func() { debug.SetGCPercent(before) })
	Tune()
	runtime.GC()
	if goal := read("/gc/heap/goal:bytes"); goal < 2*uint64(len(ballast)) || len(ballast) == 0 {
		t.Errorf("the next collection is at %d MiB", goal/mib)
	}

	// A program that kept much for a moment gives the memory back, once no collection comes any more.
	passing := make([]byte, 10*ballastSize)
	for i := range passing {
		passing[i] = 1
	}
	runtime.KeepAlive(passing)
	runtime.GC()
	const free = "/memory/classes/heap/free:bytes"
	testkit.Eventually(t, "what was kept for a moment is free", func() bool { return read(free) > 4*ballastSize })
	cycles := release(0)
	if read(free) <= 4*ballastSize {
		t.Error("memory is given back though collections come")
	}
	if release(cycles); read(free) > 2*ballastSize {
		t.Errorf("%d MiB are free, and kept", read(free)/mib)
	}
	if muchUnused(ballastSize, 0) || muchUnused(20*ballastSize, 100*ballastSize) {
		t.Error("a collection for little")
	}
}
