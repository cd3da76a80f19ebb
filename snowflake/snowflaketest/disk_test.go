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

// TestDiskPower: the power keeps what was synced, and any sectors of the rest.
func TestDiskPower(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	seen := make(map[string]int)
	for range 1000 {
		d := NewDisk()
		fill(t, d, 0, "aaaa")
		fill(t, d, 510, "aaaa")
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
		fill(t, d, 510, "bbbb")
		fill(t, d, 510, "c")
		d = d.Kill()
		if data := content(t, d); string(data[510:]) != "cbbb" {
			t.Fatalf("after the kill %q", data[510:])
		}
		after := d.PowerFail(random)
		data := content(t, after)
		if len(data) != 514 || string(data[:5]) != "aaaa\x00" {
			t.Fatalf("after the power failure %q", data)
		}
		seen[string(data[510:])]++
		if !bytes.Equal(content(t, after.PowerFail(random)), data) {
			t.Fatal("what was left is not durable")
		}
	}
	for _, want := range []string{"aaaa", "aabb", "bbaa", "bbbb", "caaa", "cabb", "cbaa", "cbbb"} {
		if seen[want] < 50 {
			t.Errorf("%q after %d of 1000 power failures", want, seen[want])
		}
		delete(seen, want)
	}
	if len(seen) > 0 {
		t.Errorf("also %v", seen)
	}
}

// TestDiskFails: what a sync that failed has lost, the next one does not save.
func TestDiskFails(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	torn, lost := 0, 0
	for range 100 {
		d := NewDisk()
		d.Fail(random, 1)
		if _, err := d.WriteAt(bytes.Repeat([]byte("a"), 2*sectorSize), 0); !errors.Is(err, ErrDisk) {
			t.Fatalf("WriteAt: %v", err)
		}
		if n := bytes.Count(content(t, d), []byte("a")); n == sectorSize {
			torn++
		}
		d.Fail(nil, 0)
		fill(t, d, 0, "b")
		d.Fail(random, 1)
		if err := d.Sync(); !errors.Is(err, ErrDisk) {
			t.Fatalf("Sync: %v", err)
		}
		d = d.Kill()
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
		if seen := content(t, d); seen[0] == 'b' && !bytes.HasPrefix(content(t, d.PowerFail(random)), []byte("b")) {
			lost++
		}
	}
	if torn == 0 || torn == 100 || lost == 0 || lost == 100 {
		t.Errorf("%d writes torn, %d syncs lost of 100", torn, lost)
	}
}

// TestDiskEnds: the dead neither read nor write, and a copy is on its own.
func TestDiskEnds(t *testing.T) {
	d := NewDisk()
	fill(t, d, 0, "a")
	c := d.Copy()
	fill(t, d, 0, "b")
	killed := d.Kill()
	failed := killed.PowerFail(rand.New(rand.NewPCG(1, 2)))
	if err := failed.Close(); err != nil {
		t.Error(err)
	}
	for name, dead := range map[string]*Disk{"killed": d, "without power": killed, "closed": failed} {
		_, read := dead.ReadAt(make([]byte, 1), 0)
		_, write := dead.WriteAt([]byte("x"), 0)
		for _, err := range []error{read, write, dead.Sync(), dead.Close()} {
			if !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if data := content(t, c.PowerFail(nil)); string(data) != "a" {
		t.Errorf("the copy has %q", data)
	}
}
