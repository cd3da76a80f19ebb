package generator

import (
	"math"
	"testing"
	"time"
)

// beating is a pulse with heartbeats that are sent and come back at given times after a start.
type beating struct {
	*pulse
	start    time.Time
	returned int
	stood    int // it sent a heartbeat again
}

func newBeating() *beating {
	b := &beating{pulse: &pulse{}, start: time.Unix(1_700_000_000, 0)}
	b.pulse.returned = func(_ time.Time, heard bool) {
		if heard {
			b.returned++
		} else {
			b.stood++
		}
	}
	return b
}

func (b *beating) at(after time.Duration) time.Time { return b.start.Add(after) }

// heartbeat sends a heartbeat that comes back after some time.
func (b *beating) beat(after, way time.Duration) {
	b.came(b.at(after+way), b.send(b.at(after)))
}

func (b *beating) want(t *testing.T, after, age time.Duration, silent bool, returned int) {
	t.Helper()
	if got := b.age(b.at(after)); got != age {
		t.Errorf("after %v a request may be %v old, want %v", after, got, age)
	}
	if _, lasted := b.silence(b.at(after)); lasted > silentAfter != silent {
		t.Errorf("after %v the silence lasts %v, want that it is silent: %v", after, lasted, silent)
	}
	if b.returned != returned {
		t.Errorf("after %v it returned %d times; want %d", after, b.returned, returned)
	}
}

const ms = time.Millisecond

func TestPulse(t *testing.T) {
	t.Parallel()
	b := newBeating()
	b.want(t, 0, math.MaxInt64, true, 0) // no heartbeat has come back
	b.beat(0, ms)
	b.want(t, 2*ms, 2*ms, false, 0)
	b.want(t, 900*ms, 900*ms, false, 0)
	b.beat(time.Second, ms)
	b.want(t, 1002*ms, 2*ms, false, 0)
	b.came(b.at(1100*ms), 1) // comes again
	b.came(b.at(1100*ms), 7) // was never sent
	b.came(b.at(1100*ms), 0) // of an older version
	b.want(t, 1100*ms, 100*ms, false, 0)
}

// A process that stood still for 12 s.
func TestPulseStoodStill(t *testing.T) {
	t.Parallel()
	b := newBeating()
	b.beat(0, ms)
	b.want(t, 12*time.Second, 12*time.Second, true, 0)
	if before, still := b.stoodStill(b.at(12 * time.Second)); !still || !before.Equal(b.start) {
		t.Errorf("it stood still: %v, since %v", still, before)
	}
	number := b.send(b.at(12 * time.Second))
	if _, still := b.stoodStill(b.at(12 * time.Second)); still || b.stood != 1 {
		t.Errorf("it stands still after a heartbeat: %v; %d times", still, b.stood)
	}
	b.came(b.at(12001*ms), number)
	b.want(t, 12002*ms, 12002*ms, false, 1) // what waited may be looked at only now
	b.beat(13*time.Second, ms)
	b.want(t, 13*time.Second, 13*time.Second, false, 1)
	b.want(t, 13002*ms, 2*ms, false, 1)
}

// A short pause makes requests older, and is no return.
func TestPulseShortPause(t *testing.T) {
	t.Parallel()
	b := newBeating()
	b.beat(0, ms)
	b.beat(1800*ms, ms)
	b.want(t, 1900*ms, 1900*ms, false, 0)
	b.beat(2800*ms, ms)
	b.want(t, 2802*ms, 2*ms, false, 0)
}

// A connection or a server that hung for 12 s: heartbeats were sent, and come back all at once.
func TestPulseHung(t *testing.T) {
	t.Parallel()
	b := newBeating()
	b.beat(0, ms)
	var late []uint64
	for s := range 12 {
		late = append(late, b.send(b.at(time.Duration(s+1)*time.Second)))
	}
	b.want(t, 12500*ms, 12500*ms, true, 0)
	if _, still := b.stoodStill(b.at(12500 * ms)); still || b.stood > 0 {
		t.Error("the process stood still")
	}
	for _, number := range late {
		b.came(b.at(12500*ms), number)
	}
	if b.returned == 0 {
		t.Error("it did not return")
	}
	n := b.returned
	b.want(t, 12501*ms, 12501*ms, false, n)
	b.beat(13*time.Second, ms)
	b.want(t, 13400*ms, 13400*ms, false, n)
	b.want(t, 13500*ms, 500*ms, false, n)
}

// It was away so long that no earlier heartbeat comes back any more.
func TestPulseLongAway(t *testing.T) {
	t.Parallel()
	b := newBeating()
	b.beat(0, ms)
	first := b.send(b.at(time.Second))
	for s := range 60 {
		b.send(b.at(time.Duration(s+2) * time.Second))
	}
	b.came(b.at(62*time.Second), first) // its place was taken since
	b.want(t, 62*time.Second, 62*time.Second, true, 0)
	b.beat(62*time.Second, ms)
	b.want(t, 62002*ms, 62002*ms, false, 1)
}

// The monotonic clock stops while a machine sleeps.
func TestPulseSlept(t *testing.T) {
	t.Parallel()
	now := time.Now()
	later := now.Add(time.Second).Round(0).Add(time.Minute) // no monotonic reading: the wall clock's alone
	if d := apart(later, now); d < time.Minute {
		t.Errorf("%v apart", d)
	}
	if d := apart(now, later); d > 0 {
		t.Errorf("%v apart", d)
	}
}
