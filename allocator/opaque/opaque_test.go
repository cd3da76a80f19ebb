package opaque

import (
	"bytes"
	"crypto/aes"
	"encoding/binary"
	"encoding/hex"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// ff1 is FF1.Encrypt of NIST SP 800-38G step by step, for any radix, length and tweak.
func ff1(key, tweak []byte, radix int, x []uint16) []uint16 {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	num := func(digits []uint16) *big.Int {
		n := new(big.Int)
		for _, d := range digits {
			n.Add(n.Mul(n, big.NewInt(int64(radix))), big.NewInt(int64(d)))
		}
		return n
	}
	str := func(n *big.Int, m int) []uint16 {
		digits, n := make([]uint16, m), new(big.Int).Set(n)
		for i := m - 1; i >= 0; i-- {
			var d big.Int
			n.DivMod(n, big.NewInt(int64(radix)), &d)
			digits[i] = uint16(d.Int64())
		}
		return digits
	}
	n, t := len(x), len(tweak)
	u := n / 2
	v := n - u
	whole := new(big.Int).Exp(big.NewInt(int64(radix)), big.NewInt(int64(v)), nil)
	b := (new(big.Int).Sub(whole, big.NewInt(1)).BitLen() + 7) / 8
	d := 4*((b+3)/4) + 4
	p := []byte{1, 2, 1, byte(radix >> 16), byte(radix >> 8), byte(radix), 10, byte(u)}
	p = binary.BigEndian.AppendUint32(p, uint32(n))
	p = binary.BigEndian.AppendUint32(p, uint32(t))
	left, right := slices.Clone(x[:u]), slices.Clone(x[u:])
	for i := range 10 {
		q := slices.Clone(tweak)
		q = append(q, make([]byte, ((-t-b-1)%16+16)%16)...)
		q = append(q, byte(i))
		q = append(q, num(right).FillBytes(make([]byte, b))...)
		mac := make([]byte, 16)
		for in := range slices.Chunk(append(slices.Clone(p), q...), 16) {
			for j := range mac {
				mac[j] ^= in[j]
			}
			block.Encrypt(mac, mac)
		}
		s := slices.Clone(mac)
		for j := 1; len(s) < d; j++ {
			next := make([]byte, 16)
			binary.BigEndian.PutUint64(next[8:], uint64(j))
			for k := range next {
				next[k] ^= mac[k]
			}
			block.Encrypt(next, next)
			s = append(s, next...)
		}
		m := u
		if i%2 == 1 {
			m = v
		}
		c := new(big.Int).Add(num(left), new(big.Int).SetBytes(s[:d]))
		c.Mod(c, new(big.Int).Exp(big.NewInt(int64(radix)), big.NewInt(int64(m)), nil))
		left, right = right, str(c, m)
	}
	return append(left, right...)
}

const digits = "0123456789abcdefghijklmnopqrstuvwxyz"

func numerals(text string) (x []uint16) {
	for _, c := range text {
		x = append(x, uint16(strings.IndexRune(digits, c)))
	}
	return x
}

func text(x []uint16) string {
	var b strings.Builder
	for _, d := range x {
		b.WriteByte(digits[d])
	}
	return b.String()
}

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	key128 = "2B7E151628AED2A6ABF7158809CF4F3C"
	key192 = "2B7E151628AED2A6ABF7158809CF4F3CEF4359D8D580AA4F"
	key256 = "2B7E151628AED2A6ABF7158809CF4F3CEF4359D8D580AA4F7F036D6F04FC6A94"
)

// The samples that NIST published for FF1. Those with an empty tweak and ten digits are of a domain.
func TestVectorsOfNIST(t *testing.T) {
	t.Parallel()
	for i, v := range []struct {
		key, tweak string
		radix      int
		in, out    string
	}{
		{key128, "", 10, "0123456789", "2433477484"},
		{key128, "39383736353433323130", 10, "0123456789", "6124200773"},
		{key128, "3737373770717273373737", 36, "0123456789abcdefghi", "a9tv40mll9kdu509eum"},
		{key192, "", 10, "0123456789", "2830668132"},
		{key192, "39383736353433323130", 10, "0123456789", "2496655549"},
		{key192, "3737373770717273373737", 36, "0123456789abcdefghi", "xbj3kv35jrawxv32ysr"},
		{key256, "", 10, "0123456789", "6657667009"},
		{key256, "39383736353433323130", 10, "0123456789", "1001623463"},
		{key256, "3737373770717273373737", 36, "0123456789abcdefghi", "xs8a0azh2avyalyzuwd"},
	} {
		key := unhex(t, v.key)
		if got := text(ff1(key, unhex(t, v.tweak), v.radix, numerals(v.in))); got != v.out {
			t.Errorf("sample %d: %s is %s by the standard's steps, want %s", i+1, v.in, got, v.out)
		}
		if v.tweak != "" {
			continue
		}
		p := must(t, "d10", key)
		in, _ := strconv.ParseInt(v.in, 10, 64)
		out, _ := strconv.ParseInt(v.out, 10, 64)
		if got := p.Conceal(in); got != out {
			t.Errorf("sample %d: %d is concealed as %d, want %d", i+1, in, got, out)
		}
		if got := p.Reveal(out); got != in {
			t.Errorf("sample %d: %d is revealed as %d, want %d", i+1, out, got, in)
		}
	}
}

func must(t testing.TB, d Domain, key []byte) *Permutation {
	t.Helper()
	p, err := New(d, key)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var domains = []Domain{Bits63, Bits53, "d9", "d10", "d11", "d12", "d13", "d14", "d15", "d16", "d17", "d18"}

// newKey is a random key.
func newKey() []byte { return NewMaster()[:KeySize] }

// In each domain the permutation is that of the standard's steps, and Reveal undoes it.
func TestLikeTheStandard(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom(domains).Draw(t, "domain")
		key := rapid.SliceOfN(rapid.Byte(), KeySize, KeySize).Draw(t, "key")
		n := rapid.Int64Range(1, d.Last()).Draw(t, "number")
		p, err := New(d, key)
		if err != nil {
			t.Fatal(err)
		}
		radix, length, _ := d.radix()
		in := new(big.Int).SetInt64(n).Text(radix)
		in = strings.Repeat("0", length-len(in)) + in
		x := numerals(in)
		for {
			if x = ff1(key, nil, radix, x); slices.ContainsFunc(x, func(d uint16) bool { return d != 0 }) {
				break
			}
		}
		want, err := strconv.ParseInt(text(x), radix, 64)
		if got := p.Conceal(n); err != nil || got != want {
			t.Fatalf("%d of %s is concealed as %d, want %d, %v", n, d, got, want, err)
		}
		if got := p.Reveal(want); got != n {
			t.Fatalf("%d of %s is revealed as %d, want %d", want, d, got, n)
		}
	})
}

// small is a domain of length numerals that is small enough to look at each of its numbers.
func small(t *testing.T, radix, length int, key []byte) *Permutation {
	p := must(t, "d10", key)
	u := length / 2
	p.sums = [2]uint64{power(radix, u), power(radix, length-u)}
	p.last = power(radix, length) - 1
	return p
}

// Over whole small domains no ID comes twice, none is 0, and each is revealed. The number that becomes 0 walks on.
func TestBijection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ radix, length int }{{2, 15}, {2, 16}, {2, 19}, {10, 5}, {10, 6}} {
		for _, key := range [][]byte{make([]byte, KeySize), unhex(t, key128), newKey()} {
			p := small(t, c.radix, c.length, key)
			seen := make([]bool, p.last+1)
			for n := int64(1); n <= int64(p.last); n++ {
				id := p.Conceal(n)
				if !p.Has(id) || seen[id] || p.Reveal(id) != n {
					t.Fatalf("radix %d, %d numerals: %d is concealed as %d, which came before (or is none, or is not revealed)", c.radix, c.length, n, id)
				}
				seen[id] = true
			}
		}
	}
}

// Of the large domains: the first and the last numbers, and a million in a row.
func TestLargeDomains(t *testing.T) {
	t.Parallel()
	for _, d := range domains {
		p := must(t, d, newKey())
		seen := make(map[int64]bool)
		check := func(n int64) {
			id := p.Conceal(n)
			if id < 1 || id > d.Last() || seen[id] || p.Reveal(id) != n {
				t.Fatalf("%s: %d is concealed as %d, and that is revealed as %d", d, n, id, p.Reveal(id))
			}
			seen[id] = true
		}
		for i := range int64(20_000) {
			check(1 + i)
			check(d.Last() - i)
		}
	}
}

func TestDomains(t *testing.T) {
	t.Parallel()
	for text, last := range map[string]int64{"63": 1<<63 - 1, "53": 1<<53 - 1, "d9": 999_999_999, "d18": 999_999_999_999_999_999} {
		if d, err := ParseDomain(text); err != nil || d.Last() != last {
			t.Errorf("%s: %d, %v; want %d", text, d.Last(), err, last)
		}
	}
	for _, text := range []string{"", "d", "d8", "d19", "d09", "d+9", "d-9", "D9", "9", "64", "53 ", "d9.0", "d99999999999999999999"} {
		if d, err := ParseDomain(text); err == nil {
			t.Errorf("%q is read as %q", text, d)
		}
	}
	if _, err := New("d8", newKey()); err == nil {
		t.Error("a domain of 8 digits")
	}
	if _, err := New("d9", make([]byte, 15)); err == nil {
		t.Error("a key of 15 bytes")
	}
}

// Keys must stay what they are, for else the IDs of each tag repeat. The values are those of Python's hmac and hashlib.
func TestKeys(t *testing.T) {
	t.Parallel()
	master := make([]byte, MasterSize)
	for i := range master {
		master[i] = byte(i)
	}
	for _, c := range []struct {
		tag, key, id string
		domain       Domain
	}{
		{"coupon", "2b6f66ab930288a06b107f42437fcc0d", "47f0e3757d48a9db", Bits53},
		{"coupon", "81e5526c5a17e4be6d56ee63837c8143", "a205b5abc29e91b7", "d9"},
		{"a", "9a60cdc3e31e22d7781d833c08b71b82", "effcd82e57cd26ab", Bits63},
	} {
		key := DeriveKey(master, c.tag, c.domain)
		if hex.EncodeToString(key) != c.key || KeyID(key) != c.id {
			t.Errorf("the key of %s in %s is %x with the ID %s", c.tag, c.domain, key, KeyID(key))
		}
	}
	if bytes.Equal(NewMaster(), NewMaster()) {
		t.Error("two master keys are equal")
	}
	if all := Domains(); !slices.Equal(all, domains) {
		t.Errorf("the domains are %v", all)
	}
}

func TestOutside(t *testing.T) {
	t.Parallel()
	p := must(t, "d9", newKey())
	for _, n := range []int64{0, -1, 1_000_000_000} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d is concealed", n)
				}
			}()
			p.Conceal(n)
		}()
	}
}

func FuzzParseDomain(f *testing.F) {
	for _, s := range []string{"63", "53", "d9", "d18", "d09", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDomain(s)
		if err != nil {
			return
		}
		if string(d) != s || !slices.Contains(domains, d) {
			t.Errorf("%q is read as %q", s, d)
		}
	})
}
