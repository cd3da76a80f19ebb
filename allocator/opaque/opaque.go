// Package opaque turns the numbers of a tag into IDs that show neither how many there are nor in
// which order they were made, and back.
//
// Each number passes through a keyed permutation of a [Domain]. A permutation is one to one, so the
// IDs are as unique as the numbers. The permutation is FF1 of NIST SP 800-38G, format-preserving
// encryption: a Feistel network of ten rounds, each with the block cipher AES (crypto/aes, with a
// key of 128 bits). The tweak is empty, because each tag has a key of its own.
//
// FF1 permutes all numbers of its numerals, 0 too, and 0 is no ID. A number that becomes 0 passes
// through FF1 again (cycle walking). That is one to one on the numbers from 1 on, and happens to a
// single number.
//
// Bounds: Revision 1 of the standard demands a domain of at least 10^6 numbers, because published
// attacks on Feistel networks recover messages of smaller ones. The smallest domain here has 10^9,
// for another reason: if n of the N IDs of a domain are in use, a guess hits one of them with the
// probability n/N. Whoever has the key can reveal every ID.
package opaque

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"sync"
)

// KeySize is the size of a key in bytes.
const KeySize = 16

// rounds is the number of rounds of FF1.
const rounds = 10

// KeyID identifies a key without showing it: a record that has it cannot be served with another
// key.
func KeyID(key []byte) string {
	sum := sha256.Sum256(append([]byte("leafbus opaque key "), key...))
	return hex.EncodeToString(sum[:8])
}

// Permutation is a permutation of the IDs of a domain. Its methods are safe for concurrent use, and
// do not allocate.
type Permutation struct {
	domain Domain
	keyID  string
	last   uint64
	block  cipher.Block
	sums   [2]uint64       // how many numbers the left and the right half have
	at     int             // where the round stands in Q, the second block of a round
	start  [blockSize]byte // the cipher's output for P, the first block of each round, which is always the same
	blocks sync.Pool       // of *[blockSize]byte: what is handed to the cipher escapes
}

const blockSize = aes.BlockSize

// New returns the permutation of a domain by a key of 16, 24 or 32 bytes.
func New(d Domain, key []byte) (*Permutation, error) {
	radix, length, ok := d.radix()
	if !ok {
		return nil, fmt.Errorf("%.20q is no domain", string(d))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	u := length / 2
	v := length - u
	p := &Permutation{domain: d, keyID: KeyID(key), last: uint64(d.Last()), block: block}
	p.sums = [2]uint64{power(radix, u), power(radix, v)}
	p.at = blockSize - 1 - (bits.Len64(p.sums[1]-1)+7)/8 // before the bytes of the largest number of a half, at most 4
	p.blocks.New = func() any { return new([blockSize]byte) }
	start := []byte{1, 2, 1, 0, 0, byte(radix), rounds, byte(u), 0, 0, 0, byte(length), 0, 0, 0, 0}
	block.Encrypt(start, start)
	copy(p.start[:], start)
	return p, nil
}

// Domain is the domain of the IDs.
func (p *Permutation) Domain() Domain { return p.domain }

// KeyID is that of its key, see [KeyID].
func (p *Permutation) KeyID() string { return p.keyID }

// Has reports whether n is a number, or an ID, of the domain.
func (p *Permutation) Has(n int64) bool { return n >= 1 && uint64(n) <= p.last }

// Conceal returns the ID of a number, which must be in the domain.
func (p *Permutation) Conceal(n int64) int64 { return p.walk(n, p.encrypt) }

// Reveal returns the number of an ID, which must be in the domain.
func (p *Permutation) Reveal(id int64) int64 { return p.walk(id, p.decrypt) }

// walk applies f until the result is no 0.
func (p *Permutation) walk(n int64, f func(uint64, *[blockSize]byte) uint64) int64 {
	if !p.Has(n) {
		panic(fmt.Sprintf("opaque: %d is not in the domain %s", n, p.domain))
	}
	block := p.blocks.Get().(*[blockSize]byte)
	x := f(uint64(n), block)
	for x == 0 {
		x = f(x, block)
	}
	p.blocks.Put(block)
	return int64(x)
}

// encrypt is FF1.Encrypt of SP 800-38G on a number, whose numerals are its digits.
func (p *Permutation) encrypt(x uint64, block *[blockSize]byte) uint64 {
	a, b := x/p.sums[1], x%p.sums[1]
	for i := range rounds {
		a += p.round(i, b, block)
		if m := p.sums[i%2]; a >= m { // faster than a division
			a -= m
		}
		a, b = b, a
	}
	return a*p.sums[1] + b
}

// decrypt is FF1.Decrypt.
func (p *Permutation) decrypt(x uint64, block *[blockSize]byte) uint64 {
	a, b := x/p.sums[1], x%p.sums[1]
	for i := rounds - 1; i >= 0; i-- {
		y := p.round(i, a, block)
		if b < y {
			b += p.sums[i%2]
		}
		a, b = b-y, a
	}
	return a*p.sums[1] + b
}

// round is the number y of round i for the half x, reduced to the size of the other half. The
// number of x has at most four bytes, so that Q is one block, and y has eight bytes.
func (p *Permutation) round(i int, x uint64, block *[blockSize]byte) uint64 {
	q := block[:]
	copy(q, p.start[:])
	q[p.at] ^= byte(i)
	binary.BigEndian.PutUint32(q[12:], binary.BigEndian.Uint32(q[12:])^uint32(x))
	p.block.Encrypt(q, q)
	y, m := binary.BigEndian.Uint64(q), p.sums[i%2]
	if m&(m-1) == 0 {
		return y & (m - 1)
	}
	return y % m
}
