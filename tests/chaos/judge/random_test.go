package judge

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/leafbus/leafbus/allocator/allocatortest"
	"github.com/leafbus/leafbus/bus"
	"github.com/leafbus/leafbus/tests/kit/callers"
)

// world is some calls of a strict tag or one in trend order, and what was demanded of it: mostly it has no violation.
type world struct {
	trial
	strict, excused      bool
	floor, pause, resume int64 // times
	calls                []callers.Call
}

func (w world) String() string {
	text := fmt.Sprintf("strict %v, excused %v, floor at %d, pause %d-%d", w.strict, w.excused, w.floor, w.pause, w.resume)
	for _, c := range w.calls {
		text += fmt.Sprintf("\n\t%v sent %v, answered %v", c.Ranges, w.since(c.Sent), w.since(c.Ended))
	}
	return text
}

func newWorld(random *rand.Rand) world {
	w := world{
		trial: trial{New()}, strict: random.IntN(2) == 0, excused: random.IntN(2) == 0,
		floor: 50 + random.Int64N(150), pause: 50 + random.Int64N(50), resume: 100 + random.Int64N(50),
	}
	next := int64(1)
	for now, n := int64(0), random.IntN(40); len(w.calls) < n; now += random.Int64N(8) {
		sent, ended, first := now-random.Int64N(30), now+random.Int64N(30), next
		if now >= w.floor-30 && random.IntN(20) > 0 {
			first = max(first, 100)
		}
		if sent > w.pause && ended < w.resume && random.IntN(40) > 0 {
			continue
		}
		if random.IntN(40) == 0 {
			first = max(1, first-random.Int64N(40))
		}
		last := first + random.Int64N(5)
		w.calls = append(w.calls, callers.Call{
			Kind: "raw", Tag: "a", Sent: w.at(sent), Ended: w.at(ended), Ranges: []bus.Range{{First: first, Last: last}},
		})
		next = max(next, last+1+random.Int64N(5))
	}
	return w
}

// wrong finds all violations: it compares each ID and each pair of calls.
func (w world) wrong() (checks []string) {
	within := func(t time.Time) bool { return w.excused && !t.Before(w.at(100)) && !t.After(w.at(200)) }
	came := make(map[int64][]time.Time)
	for _, c := range w.calls {
		r := c.Ranges[0]
		if c.Sent.After(w.at(w.floor)) && r.First < 100 {
			checks = append(checks, floor)
		}
		if c.Sent.After(w.at(w.pause)) && c.Ended.Before(w.at(w.resume)) {
			checks = append(checks, paused)
		}
		if c.Ended.Before(w.at(150)) && r.Last >= 150 {
			checks = append(checks, ends)
		}
		for id := r.First; id <= r.Last; id++ {
			came[id] = append(came[id], c.Ended)
			for _, earlier := range w.calls {
				forgiven := id >= 20 && id <= 120 && within(c.Ended) && earlier.Ended.Before(w.at(100))
				if w.strict && earlier.Ended.Before(c.Sent) && earlier.Ranges[0].Last >= id && !forgiven {
					checks = append(checks, order)
				}
			}
		}
	}
	for id, times := range came {
		second := slices.MaxFunc(times, time.Time.Compare)
		if len(times) > 2 || len(times) == 2 && (id < 20 || id > 120 || !within(second)) {
			checks = append(checks, twice)
		}
	}
	return checks
}

// The judge sees the calls in another order than that in which they ended.
func TestRandom(t *testing.T) {
	t.Parallel()
	random := allocatortest.Seed(t)
	found := make(map[string]int)
	for n := range 20_000 {
		w := newWorld(random)
		if w.strict {
			w.Strict("a")
		}
		if w.excused {
			w.excuse(twice, 20, 120)
			w.excuse(order, 20, 120)
		}
		rules := random.IntN(len(w.calls) + 1)
		now, pace := int64(300), 1+random.Int64N(50)
		slices.SortFunc(w.calls, byEnd)
		for i := range w.calls { // some come late
			if k := random.IntN(i + 1); random.IntN(4) == 0 {
				w.calls[i], w.calls[k] = w.calls[k], w.calls[i]
			}
		}
		for i := range len(w.calls) + 1 {
			if i == rules {
				w.Floor("a", 100, w.at(w.floor))
				w.Pause("a", w.at(w.pause))
				w.Resume("a", w.at(w.resume))
				w.End("a", 150, w.at(150))
			}
			if i < len(w.calls) {
				w.Add(w.calls[i])
			}
			now += random.Int64N(pace)
			w.check(now)
		}
		got, want := w.check(10_000), w.wrong()
		found[got]++
		if got != "" && !slices.Contains(want, got) || got == "" && len(want) > 0 {
			t.Fatalf("world %d: found %q, want one of %q: %+v\n%v", n, got, want, w.Check(w.at(0)), w)
		}
	}
	t.Log("found: ", found)
	for _, check := range []string{"", twice, order, floor, paused, ends} {
		if found[check] == 0 {
			t.Errorf("no world in which %q was found", check)
		}
	}
}

// BenchmarkHour judges 3 million calls, with a Check for each 200 ms. It reports the cost of a Check, and the memory at
// the end.
func BenchmarkHour(b *testing.B) {
	const calls, hour = 3_000_000, time.Hour
	tags := []string{"trend", "bulk", "strict", "opaque", "snowflakes", "pool"}
	for b.Loop() {
		j, random := New(), rand.New(rand.NewPCG(1, 1))
		j.Strict("strict")
		j.Opaque("opaque", 1<<62)
		next := make(map[string]*[4]int64) // each generator has a segment
		var slowest, all time.Duration
		checks := 0
		for i := range calls {
			now := j.began.Add(hour / calls * time.Duration(i))
			tag, g := tags[i%len(tags)], random.IntN(4)
			if next[tag] == nil {
				next[tag] = &[4]int64{1, 1e12, 2e12, 3e12}
			}
			if tag == "strict" {
				g = 0
			}
			r := bus.Range{First: next[tag][g], Last: next[tag][g]}
			if tag == "bulk" {
				r.Last += random.Int64N(1000)
			}
			next[tag][g] = r.Last + 1
			if tag == "opaque" {
				r.First = random.Int64N(1 << 62)
				r.Last = r.First
			}
			j.Add(callers.Call{Kind: "raw", Tag: tag, Sent: now.Add(-time.Millisecond), Ended: now, Ranges: []bus.Range{r}})
			if i%(calls/18_000) == 0 {
				if checks%5 == 0 {
					j.End("trend", 4e12, now)
				}
				began := time.Now()
				if v := j.Check(now); v != nil {
					b.Fatal(v.Text)
				}
				took := time.Since(began)
				slowest, all, checks = max(slowest, took), all+took, checks+1
			}
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(all.Microseconds())/float64(checks), "µs/Check")
		b.ReportMetric(float64(slowest.Microseconds()), "µs/slowest")
		b.ReportMetric(float64(m.HeapAlloc>>20), "MiB")
		runtime.KeepAlive(j)
	}
}
