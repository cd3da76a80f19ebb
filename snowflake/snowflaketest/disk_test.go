package snowflaketest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"testing"
)

// content is what the disk's file has.
func content(t *testing.T, d *Disk) []byte {
	t.Helper()
	data, err := io.ReadAll(io.NewSectionReader(d, 0, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func fill(t *testing.T, d *Disk, at int64, data string) {
	t.Helper()
	if n, err := d.WriteAt([]byte(data), at); n != len(data) || err != nil {
		t.Fatalf("WriteAt = %d, %v", n, err)
	}
}

// TestDisk: a kill keeps all that was written, and the power what was synced and any sectors of the rest. A sync that
// failed may lose what it was for, and the next one does not save that. The dead do nothing.
func TestDisk(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	seen := make(map[string]int)
	lost := 0
	for range 1000 {
		d := NewDisk()
		fill(t, d, 0, "aaaa")
		fill(t, d, 510, "aaaa")
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
		fill(t, d, 510, "bbbb")
		fill(t, d, 510, "c")
		killed := d.Kill()
		if data := content(t, killed); string(data[510:]) != "cbbb" {
			t.Fatalf("after the kill %q", data[510:])
		}
		unsynced := killed.Copy()
		after := killed.PowerFail(random)
		data := content(t, after)
		if len(data) != 514 || string(data[:5]) != "aaaa\x00" || !bytes.Equal(content(t, after.Copy().PowerFail(random)), data) {
			t.Fatalf("after the power failure %q", data)
		}
		seen[string(data[510:])]++

		fill(t, unsynced, 0, "x")
		unsynced.Fail(random, 1)
		if err := unsynced.Sync(); !errors.Is(err, ErrDisk) {
			t.Fatalf("Sync: %v", err)
		}
		unsynced = unsynced.Kill()
		if err := unsynced.Sync(); err != nil {
			t.Fatal(err)
		}
		if content(t, unsynced.PowerFail(random))[0] != 'x' {
			lost++
		}
		for _, dead := range []*Disk{d, killed} {
			_, err := dead.WriteAt([]byte("x"), 0)
			if !errors.Is(err, os.ErrClosed) || !errors.Is(dead.Sync(), os.ErrClosed) {
				t.Fatalf("a dead one writes: %v", err)
			}
		}
	}
	for _, want := range []string{"aaaa", "aabb", "bbaa", "bbbb", "caaa", "cabb", "cbaa", "cbbb"} {
		if seen[want] < 50 {
			t.Errorf("%q after %d of 1000 power failures", want, seen[want])
		}
	}
	if len(seen) != 8 || lost < 300 || lost > 700 {
		t.Errorf("it left %v; %d of 1000 syncs that failed were lost", seen, lost)
	}
}
