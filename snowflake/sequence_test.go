package snowflake

import (
	"math/rand/v2"
	"testing"
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
