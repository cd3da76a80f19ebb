package generator

import (
	"testing"
	"time"
)

// flooded is a service that reads so many requests a ms, and its valve, in virtual time.
type flooded struct {
	valve
	perMS       int
	now         time.Time
	came        []time.Time // of the requests that wait
	in, refused int         // requests
	closings    int
	oldest      time.Duration // of those that were read
	overloaded  bool
}

// pass lets so much time pass, in which so many requests come in a ms.
func (f *flooded) pass(d time.Duration, rate int) {
	for range d / time.Millisecond {
		for range rate {
			if f.shut {
				f.refused++
			} else {
				f.came = append(f.came, f.now)
			}
		}
		for range min(f.perMS, len(f.came)) {
			f.oldest = max(f.oldest, f.now.Sub(f.came[0]))
			f.came = f.came[1:]
			f.in++
			f.served(len(f.came))
		}
		f.now = f.now.Add(time.Millisecond)
		switch f.look(f.now, len(f.came)) {
		case valveShuts:
			f.closings++
			f.overloaded = true
		case overloadEnds:
			f.overloaded = false
		}
	}
}

// In an overload nearly all of the capacity makes answers, and they come in time. The valve closes only a few times a
// second. Soon after the overload all requests are answered again.
func TestValveInAnOverload(t *testing.T) {
	t.Parallel()
	for _, rate := range []int{30, 55, 75, 100, 150, 250, 500} {
		f := &flooded{perMS: 50, now: time.Unix(1, 0)}
		f.pass(time.Second, 25)
		f.pass(3*time.Second, rate)
		f.in, f.oldest, f.closings = 0, 0, 0
		f.pass(3*time.Second, rate)
		if f.in < min(rate, 50)*2990 || f.oldest > waitAtMost+5*time.Millisecond || f.closings > 3*12 {
			t.Errorf("of %d a ms %d were answered in 3 s; the oldest was %v old; the valve closed %d times", rate, f.in, f.oldest, f.closings)
		}
		if f.overloaded != (rate > 50) {
			t.Errorf("%d a ms are an overload: %v", rate, f.overloaded)
		}
		f.pass(500*time.Millisecond, 25)
		f.in, f.refused, f.oldest = 0, 0, 0
		f.pass(calm, 25)
		if f.refused > 0 || f.oldest > 2*time.Millisecond || f.overloaded {
			t.Errorf("after %d a ms %d were refused; the oldest was %v old; it is an overload: %v", rate, f.refused, f.oldest, f.overloaded)
		}
	}
}

func TestValve(t *testing.T) {
	t.Parallel()
	at := func(ms int) time.Time { return time.Unix(1, 0).Add(time.Duration(ms) * time.Millisecond) }
	type look struct {
		ms, served, waiting int // at this time, after so many were read since the last look, so many wait
		want                verdict
	}
	for name, looks := range map[string][]look{
		"a burst is no overload": {{0, 0, 1, valveStays}, {1, 1, 60_000, valveStays}, {99, 1, 59_000, valveStays}},
		"the limit is 0.15 s":    {{0, 0, 1, valveStays}, {100, 10_000, 15_001, valveShuts}},
		"less is not":            {{0, 0, 1, valveStays}, {100, 10_000, 15_000, valveStays}},
		"few may always wait":    {{0, 0, 1, valveStays}, {100, 1, 500, valveStays}, {101, 1, 501, valveShuts}},
		"it measures again": {{0, 0, 1, valveStays}, {100, 10_000, 15_000, valveStays}, {200, 1, 15_000, valveShuts},
			{300, 10_000, 15_000, valveStays}, {451, 15_100, 7_000, valveOpens}},
		"half is left": {{0, 0, 1, valveStays}, {100, 10_000, 15_001, valveShuts}, {150, 5_000, 7_500, valveStays},
			{151, 0, 7_499, valveOpens}},
		"the rate is forgotten": {{0, 0, 1, valveStays}, {100, 10_000, 15_000, valveStays}, {150, 15_000, 0, valveStays},
			{151, 1, 60_000, valveStays}},
		"but not in an overload": {{0, 0, 1, valveStays}, {100, 10_000, 15_001, valveShuts}, {150, 15_000, 0, valveOpens},
			{151, 1, 15_001, valveShuts}},
		"it is over": {{0, 0, 1, valveStays}, {100, 10_000, 15_001, valveShuts}, {400, 15_000, 0, valveOpens},
			{5100, 1, 0, valveStays}, {5101, 1, 0, overloadEnds}, {5102, 1, 0, valveStays}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var v valve
			for _, l := range looks {
				for i := range l.served {
					v.served(max(l.waiting, l.served-i-1))
				}
				if got := v.look(at(l.ms), l.waiting); got != l.want {
					t.Errorf("after %d ms: %v, want %v", l.ms, got, l.want)
				}
			}
		})
	}
}
