package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sample is what a process uses in a calm moment.
type sample struct {
	at          time.Time
	Megabytes   int `json:"megabytes"` // resident
	Descriptors int `json:"descriptors"`
	Goroutines  int `json:"goroutines"` // 0: unknown, of a NATS server
}

// start is one run of a process.
type start struct {
	name string
	pid  int
}

// samples are the calm moments of each start, in order.
type samples map[start][]sample

const (
	// leakMoments is how many calm moments a start needs before it is judged, and leakAfter how long they last. After some
	// losses of the quorum embedded servers had a hundred goroutines more, and a steady number in runs of ten minutes.
	leakMoments = 6
	leakAfter   = 4 * time.Minute
)

// leak compares the last third of the moments with the first. What is used in all of the last, and was used in none of
// the first, stays used: a single moment may be high by chance. The room is for caches that fill, and for callers that
// move to this server. A connection needs a descriptor and up to three goroutines.
func leak(all []sample) string {
	n := len(all)
	if n < leakMoments || all[n-1].at.Sub(all[0].at) < leakAfter {
		return ""
	}
	first, last := all[:n/3], all[n-n/3:]
	for _, x := range []struct {
		what string
		of   func(sample) int
		room int
	}{
		{"goroutines without a connection", func(u sample) int { return max(0, u.Goroutines-3*u.Descriptors) }, 30},
		{"descriptors", func(u sample) int { return u.Descriptors }, 100},
		{"megabytes", func(u sample) int { return u.Megabytes }, 100},
	} {
		before := x.of(slices.MaxFunc(first, func(u, v sample) int { return x.of(u) - x.of(v) }))
		now := x.of(slices.MinFunc(last, func(u, v sample) int { return x.of(u) - x.of(v) }))
		if now > before*5/4+x.room {
			return fmt.Sprintf("at least %d %s, and at most %d %v ago", now, x.what, before,
				all[n-1].at.Sub(all[0].at).Round(time.Second))
		}
	}
	return ""
}

// leaks samples all processes in a calm moment, and demands that what each uses is flat.
func (w *world) leaks() {
	for _, p := range w.processes() {
		pid, ok := p.pid()
		if !ok {
			continue
		}
		u, err := used(pid)
		if err != nil {
			continue // it has just ended
		}
		for _, m := range w.machines {
			if m.process == p {
				u.Goroutines = m.metric("go_goroutines")
			}
		}
		s := start{p.name, pid}
		w.samples[s] = append(w.samples[s], u)
		if text := leak(w.samples[s]); text != "" {
			w.violated("leak", "", fmt.Sprintf("%s has %s", p.name, text))
		}
	}
}

func used(pid int) (u sample, err error) {
	u.at = time.Now()
	folder := fmt.Sprint("/proc/", pid)
	files, err := os.ReadDir(folder + "/fd")
	if err != nil {
		return u, err
	}
	u.Descriptors = len(files)
	memory, err := os.ReadFile(folder + "/statm")
	if err != nil {
		return u, err
	}
	fields := strings.Fields(string(memory)) // in pages: size, resident
	if len(fields) < 2 {
		return u, fmt.Errorf("%s/statm has %q", folder, memory)
	}
	pages, err := strconv.Atoi(fields[1])
	u.Megabytes = pages * os.Getpagesize() >> 20
	return u, err
}

// metric is the value of a metric without labels; 0 if it cannot be had.
func (m *machine) metric(name string) int {
	_, body := get("http://" + m.http + "/metrics")
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			x, _ := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return int(x)
		}
	}
	return 0
}

// longest is the start of each process that was seen for the longest time.
func (all samples) longest() map[string][]sample {
	found := make(map[string][]sample)
	for _, s := range slices.SortedFunc(maps.Keys(all), func(x, y start) int { return x.pid - y.pid }) {
		if len(all[s]) > len(found[s.name]) {
			found[s.name] = all[s]
		}
	}
	return found
}
