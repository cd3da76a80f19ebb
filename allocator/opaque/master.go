package opaque

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
)

// MasterSize is the size of a master key in bytes.
const MasterSize = 32

// NewMaster returns a random master key.
func NewMaster() []byte {
	master := make([]byte, MasterSize)
	rand.Read(master) // it never fails
	return master
}

// DeriveKey returns the key of a tag: the first bytes of the HMAC-SHA256 of its domain and name
// under the master key. So a name always has the same key in a domain, and nobody can compute
// another key, or the master key, from it.
func DeriveKey(master []byte, tag string, d Domain) []byte {
	mac := hmac.New(sha256.New, master)
	fmt.Fprintf(mac, "leafbus opaque tag %s %s", d, tag) // a domain has no space
	return mac.Sum(nil)[:KeySize]
}
