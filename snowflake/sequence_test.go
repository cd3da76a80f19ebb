package snowflake

import (
	"math/rand/v2"
	"testing"

	"github.com/leafbus/leafbus/allocator/allocatortest"
)

// numbers is what changes of a sequence.
type numbers struct {
	ms, next int64
	packed   bool
}

func (n numbers) of(size int64) sequence {
	return sequence{unit: 1, size: size, random: rand.Int64N, ms: n.ms, next: n.next, packed: n.packed}
}

func numbersOf(s sequence) numbers { return numbers{s.ms, s.next, s.packed} }

func TestSequenceEnter(t *testing.T) {
	// random starts as high as it can: at 127.
	const size, full, random = 4096, 4096, 127
	for name, c := range map[string]struct {
		seq  numbers
		t    int64
		want numbers
	}{
		"the same millisecond":             {numbers{1000, 5, false}, 1000, numbers{1000, 5, false}},
		"the same, full":                   {numbers{1000, full, false}, 1000, numbers{1000, full, false}},
		"the same, packed":                 {numbers{1000, 5, true}, 1000, numbers{1000, 5, true}},
		"the clock is behind":              {numbers{1000, 5, true}, 999, numbers{1000, 5, true}},
		"the clock is behind, full":        {numbers{1000, full, true}, 990, numbers{1000, full, true}},
		"the next, idle":                   {numbers{1000, 5, false}, 1001, numbers{1001, random, false}},
		"a later one, idle":                {numbers{1000, 5, false}, 1010, numbers{1010, random, false}},
		"the next, full":                   {numbers{1000, full, false}, 1001, numbers{1001, 0, true}},
		"the next, packed and full":        {numbers{1000, full, true}, 1001, numbers{1001, 0, true}},
		"a packed one is filled first":     {numbers{1000, 5, true}, 1001, numbers{1000, 5, true}},
		"full, as far behind as allowed":   {numbers{1000, full, true}, 1010, numbers{1001, 0, true}},
		"full, further behind":             {numbers{1000, full, true}, 1051, numbers{1051, random, false}},
		"packed, as far behind as allowed": {numbers{1000, 5, true}, 1010, numbers{1000, 5, true}},
		"packed, further behind":           {numbers{1000, 5, true}, 1051, numbers{1051, random, false}},
		"full, but years ago":              {numbers{1000, full, false}, 1 << 40, numbers{1 << 40, random, false}},
	} {
		s := c.seq.of(size)
		s.random = func(n int64) int64 { return n - 1 }
		if s.enter(c.t); numbersOf(s) != c.want {
			t.Errorf("%s: %+v at %d became %+v, want %+v", name, c.seq, c.t, numbersOf(s), c.want)
		}
	}
}

// TestSequenceStart: in an idle millisecond every start within the first
// 32nd is as likely as any other.
func TestSequenceStart(t *testing.T) {
	for _, c := range []struct{ size, starts int64 }{{2, 1}, {16, 1}, {32, 1}, {64, 2}, {1024, 32}, {4096, 128}, {1 << 20, 1 << 15}} {
		const each = 1000
		got := make(map[int64]int)
		s := numbers{}.of(c.size)
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

// TestSequenceProperties: whatever the clock does and however much is asked
// for, each ID comes after the one before, no millisecond has more than its
// size, none lies ahead of the clock's highest, or further behind than allowed.
func TestSequenceProperties(t *testing.T) {
	random := allocatortest.Seed(t)
	for _, size := range []int64{2, 64, 4096} {
		s := numbers{}.of(size)
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
			room := s.room(now, random.IntN(2) == 0)
			if room < 0 {
				t.Fatalf("%+v has room for %d", s, room)
			}
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
			issued[s.ms] += n
			if issued[s.ms] > size || s.next > size {
				t.Fatalf("%+v: %d IDs in one millisecond", s, issued[s.ms])
			}
			lastMS, lastNext = s.ms, s.next-1
		}
		if len(issued) < 1000 {
			t.Errorf("only %d milliseconds were used: the test does too little", len(issued))
		}
	}
}

func TestSequenceSkip(t *testing.T) {
	for name, c := range map[string]struct {
		seq  numbers
		to   int64
		want numbers
	}{
		"to a later millisecond":     {numbers{1000, 5, true}, 1005, numbers{1005, 16, false}},
		"the rest of this":           {numbers{1000, 5, true}, 1000, numbers{1000, 16, false}},
		"what is behind already":     {numbers{1000, 5, true}, 999, numbers{1000, 5, true}},
		"what is long behind":        {numbers{1000, 5, false}, -1, numbers{1000, 5, false}},
		"before anything was issued": {numbers{0, 0, false}, 1000, numbers{1000, 16, false}},
	} {
		s := c.seq.of(16)
		if s.skip(c.to); numbersOf(s) != c.want {
			t.Errorf("%s: %+v became %+v, want %+v", name, c.seq, numbersOf(s), c.want)
		}
	}
}

func TestSequenceRoom(t *testing.T) {
	const now = 1000
	for _, c := range []struct {
		size, ms, next int64
		small, large   int64
	}{
		{4096, now, 0, 4096, 3072},
		{4096, now, 100, 3996, 2972},
		{4096, now, 3071, 1025, 1},
		{4096, now, 3072, 1024, 0},
		{4096, now, 4000, 96, 0},
		{4096, now, 4096, 0, 0},
		{4096, now - 1, 0, 4096, 4096}, // it has passed
		{4096, now - 1, 4000, 96, 96},
		{4096, now - 1, 4096, 0, 0},
		{4, now, 0, 4, 3},
		{2, now, 0, 2, 2}, // too few to keep any
	} {
		s := numbers{c.ms, c.next, true}.of(c.size)
		if small, large := s.room(now, false), s.room(now, true); small != c.small || large != c.large {
			t.Errorf("%d of %d in millisecond %d are used: a small request has room for %d, a large one for %d; want %d and %d",
				c.next, c.size, c.ms, small, large, c.small, c.large)
		}
	}
}
