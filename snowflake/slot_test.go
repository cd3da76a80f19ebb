package snowflake

import (
	"bytes"
	"fmt"
	"hash/crc64"
	"math"
	"strings"
	"testing"
	"time"
)

// FuzzReadSlot reads anything, as it is and as a text whose checksum is right.
// What is accepted is what a generator can mean, and is written back the same.
func FuzzReadSlot(f *testing.F) {
	good := slot{Write: 7, Saved: Saved{Layout: DefaultLayout(), Node: "ä", Worker: 3, Ceiling: 5}}
	for _, change := range []func(*slot){
		func(*slot) {},
		func(r *slot) { r.Write = math.MaxInt64 },
		func(r *slot) { r.Write = 0 },
		func(r *slot) { r.Write = -1 },
		func(r *slot) { r.Worker = -1 },
		func(r *slot) { r.Worker = -2 },
		func(r *slot) { r.Ceiling = -1 },
		func(r *slot) { r.ReservedUntil = -1 },
		func(r *slot) { r.Layout.TimeBits++ },
		func(r *slot) { r.Layout = r.Layout.In(10 * time.Millisecond) },
		func(r *slot) { r.Layout.UnitMS = 7 },
		func(r *slot) { r.Node, r.Write = strings.Repeat("n", 3500), 3000 },
	} {
		r := good
		change(&r)
		data := r.encode()
		f.Add(data)
		f.Add(bytes.TrimRight(data[textFrom:], "\x00"))
	}
	f.Add(make([]byte, slotSize))
	f.Add([]byte(`{"write":1}`))
	f.Add([]byte(`{} {}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		text := make([]byte, slotSize-textFrom)
		copy(text, data)
		for _, data := range [][]byte{data, fmt.Appendf(nil, "%s%016x%s", magic, crc64.Checksum(text, sums), text)} {
			r, ok := readSlot(data)
			if !ok {
				continue
			}
			if len(data) != slotSize || !bytes.HasPrefix(data, []byte("leaf-worker/1 ")) {
				t.Fatalf("%d bytes, %.20q, are read as %+v", len(data), data, r)
			}
			if r.Write < 1 || r.Worker < -1 || r.Ceiling < 0 || r.ReservedUntil < 0 || r.Layout.Validate() != nil {
				t.Fatalf("%q is read as %+v", data, r)
			}
			again := r.encode()
			fits := again[slotSize-1] == 0 // the text may have been there without the escapes
			if back, ok := readSlot(again); fits && (!ok || back != r) {
				t.Fatalf("%+v is written %q and read as %+v, %v", r, again, back, ok)
			}
			// A bit that flips does not go unnoticed.
			flipped := bytes.Clone(data)
			flipped[r.Write%slotSize] ^= 1 << (r.Ceiling % 8)
			if _, ok := readSlot(flipped); ok {
				t.Fatalf("a bit of %+v was changed", r)
			}
		}
	})
}
