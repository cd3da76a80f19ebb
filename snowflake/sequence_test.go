package snowflake

import (
	"math/rand/v2"
	"testing"

	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// TestSequenceStart: in an idle millisecond every start within the first 32nd is as likely as any other.
func TestSequenceStart(t *testing.T) {
	for _, c := range []struct{ size, starts int64 }{{2, 1}, {32, 1}, {64, 2}, {4096, 128}, {1 << 20, 1 << 15}} {
		const each = 1000
		got := make(map[int64]int)
		s := sequence{unit: 1, size: c.size, random: rand.Int64N}
		buckets := min(c.starts, 128)
		for i := range each * buckets {
			s.enter(i + 1)
			if s.next < 0 || s.next >= c.starts {
				t.Fatalf("of %d, the first is %d, want one below %d", c.size, s.next, c.starts)
			}
			got[s.next*buckets/c.starts]++
			s.next++ // one ID is issued
		}
		for b := range buckets {
			if n := got[b]; n < each/2 || n > 2*each {
				t.Errorf("of %d, part %d of %d of the starts came %d times, want about %d", c.size, b, buckets, n, each)
			}
		}
	}
}

// TestSequenceProperties: whatever the clock does and however much is asked for, each ID comes after the one before,
// no millisecond has more than its size, none lies ahead of the clock's highest, or further behind than allowed.
func TestSequenceProperties(t *testing.T) {
	random := allocatortest.Seed(t)
	for _, size := range []int64{2, 64, 4096} {
		s := sequence{unit: 1, size: size, random: rand.Int64N}
		s.skip(999)
		now, highest := int64(1000), int64(1000)
		issued := make(map[int64]int64) // IDs of a millisecond
		lastMS, lastNext := int64(-1), int64(-1)
		for range 100_000 {
			switch random.IntN(20) {
			case 0:
				now -= random.Int64N(5)
			case 1:
				now += random.Int64N(30)
			case 2, 3, 4, 5:
				now++
			}
			highest = max(highest, now)
			if random.IntN(1000) == 0 { // another worker
				s.skip(s.ms)
			}
			s.enter(now)
			room := size - s.next
			if room == 0 {
				continue
			}
			n := 1 + random.Int64N(room)
			if random.IntN(2) == 0 {
				n = room
			}
			if s.ms < lastMS || s.ms == lastMS && s.next <= lastNext {
				t.Fatalf("%+v comes after millisecond %d, number %d", s, lastMS, lastNext)
			}
			if s.ms > highest || s.ms < now-maxLag {
				t.Fatalf("IDs of millisecond %d are issued at %d, when the clock has been at %d", s.ms, now, highest)
			}
			s.next += n
			if issued[s.ms] += n; issued[s.ms] > size || s.next > size {
				t.Fatalf("%+v: %d IDs in one millisecond", s, issued[s.ms])
			}
			lastMS, lastNext = s.ms, s.next-1
		}
		if len(issued) < 1000 {
			t.Errorf("only %d milliseconds were used: the test does too little", len(issued))
		}
	}
}
