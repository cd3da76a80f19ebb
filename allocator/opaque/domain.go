package opaque

import (
	"fmt"
	"strconv"
)

// Domain is the numbers from which the IDs of a tag come, as text: "63" and "53" are bits, and "d9"
// to "d18" are decimal digits. They begin at 1, because 0 is no ID.
type Domain string

// The domains of bits.
const (
	Bits63 Domain = "63" // all positive numbers of 64 bits with a sign
	Bits53 Domain = "53" // all positive numbers that JavaScript can hold exactly
)

// The domains of decimal digits. Below 10^9 numbers, callers could guess too many. No more than 18
// digits fit into 63 bits.
const (
	leastDigits = 9
	mostDigits  = 18
)

// Domains are all that there are.
func Domains() []Domain {
	all := []Domain{Bits63, Bits53}
	for n := leastDigits; n <= mostDigits; n++ {
		all = append(all, Domain("d"+strconv.Itoa(n)))
	}
	return all
}

// ParseDomain reads a domain.
func ParseDomain(text string) (Domain, error) {
	d := Domain(text)
	if _, _, ok := d.radix(); !ok {
		return "", fmt.Errorf("the domain %.20q is none of 63, 53 and d%d to d%d (bits, or decimal digits)",
			text, leastDigits, mostDigits)
	}
	return d, nil
}

// radix returns the radix of the numerals, and how many a number has. ok is false for a text that
// is no domain.
func (d Domain) radix() (radix, length int, ok bool) {
	switch d {
	case Bits63:
		return 2, 63, true
	case Bits53:
		return 2, 53, true
	}
	if len(d) < 2 || d[0] != 'd' || d[1] == '0' || d[1] == '+' {
		return 0, 0, false
	}
	length, err := strconv.Atoi(string(d[1:]))
	return 10, length, err == nil && length >= leastDigits && length <= mostDigits
}

// Last is the largest ID of the domain, and how many IDs it has.
func (d Domain) Last() int64 {
	radix, length, _ := d.radix()
	return int64(power(radix, length) - 1)
}

// power is radix to the power of n. It must be at most 2^63.
func power(radix, n int) uint64 {
	p := uint64(1)
	for range n {
		p *= uint64(radix)
	}
	return p
}
