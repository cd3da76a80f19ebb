package opaque

import (
	"math"
	"testing"
)

// counts is what a caller could look for in IDs that came one after the other.
type counts struct {
	n       int
	high    [256]int // the IDs in each 256th of the domain
	low     [256]int // by the lowest eight bits
	pairs   [256]int // an ID and the next one, by the sixteenths of the domain
	lowPair [256]int // by the lowest four bits of both
	rises   int      // how often the next one is larger
	before  int64
}

func (c *counts) add(id, last int64) {
	part := func(id int64, parts float64) int { return min(int(float64(id)/float64(last)*parts), int(parts)-1) }
	c.high[part(id, 256)]++
	c.low[id&255]++
	if c.n++; c.n > 1 {
		c.pairs[part(c.before, 16)*16+part(id, 16)]++
		c.lowPair[c.before&15*16+id&15]++
		if id > c.before {
			c.rises++
		}
	}
	c.before = id
}

// worst is by how many standard deviations the counts are away from those of random IDs, at most.
func (c *counts) worst() float64 {
	chi := func(of [256]int, n int) float64 {
		want, sum := float64(n)/256, 0.0
		for _, got := range of {
			sum += (float64(got) - want) * (float64(got) - want) / want
		}
		return math.Abs(sum-255) / math.Sqrt(2*255)
	}
	pairs := c.n - 1
	return max(chi(c.high, c.n), chi(c.low, c.n), chi(c.pairs, pairs), chi(c.lowPair, pairs),
		math.Abs(float64(c.rises)-float64(pairs)/2)/math.Sqrt(float64(pairs)/12))
}

// A million IDs in a row look random: each part of the domain, and each pair of parts, comes about as often. A counter
// does not, nor does one whose step is large and odd.
func TestLooksRandom(t *testing.T) {
	t.Parallel()
	const many, bound = 1_000_000, 6 // standard deviations
	judge := func(last int64, id func(n int64) int64) float64 {
		var c counts
		for n := int64(1); n <= many; n++ {
			c.add(id(n), last)
		}
		return c.worst()
	}
	for i, d := range []Domain{Bits63, Bits53, "d9", "d12"} {
		key := make([]byte, KeySize) // always the same: random IDs can be far off, too, once in a long while
		key[0] = byte(i)
		p := must(t, d, key)
		if worst := judge(d.Last(), p.Conceal); worst > bound {
			t.Errorf("%s: %.1f standard deviations", d, worst)
		}
		if worst := judge(d.Last(), func(n int64) int64 { return n }); worst < 10*bound {
			t.Errorf("%s: a counter is only %.1f standard deviations off", d, worst)
		}
		stride := d.Last()/1_618_034*1_000_003 | 1
		at := int64(0)
		stepped := func(int64) int64 {
			if at += stride; at >= d.Last() || at < 0 {
				at -= d.Last()
			}
			return at
		}
		if worst := judge(d.Last(), stepped); worst < 10*bound {
			t.Errorf("%s: a counter with a large step is only %.1f standard deviations off", d, worst)
		}
	}
}
