package snowflaketest

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"

	"github.com/leafbus/leafbus/snowflake"
)

// sectorSize is what a disk writes at once, in bytes: wholly or not at all.
const sectorSize = 512

// ErrDisk is the error of a [Disk] that was made to fail.
var ErrDisk = errors.New("injected fault of the disk")

// Disk is a [snowflake.Disk] in memory with one file, behind a cache of the system that loses what
// was not synced when the power fails. Safe for concurrent use; after Kill, PowerFail and Close it
// returns [os.ErrClosed], so that the dead write nothing.
type Disk struct {
	mu       sync.Mutex
	seen     []byte  // what is read
	durable  []byte  // what the power leaves
	unsynced []write // what it may leave of later writes
	closed   bool

	random *rand.Rand // of the faults
	share  float64
}

type write struct {
	at   int
	data []byte
}

var _ snowflake.Disk = (*Disk)(nil)

// NewDisk returns a disk with an empty file.
func NewDisk() *Disk { return &Disk{} }

// Fail makes that share of writes and syncs fail from now on, 0 to 1, with [ErrDisk]. A write that
// fails leaves any of its sectors new and the others old. A sync that fails makes any of the writes
// durable; the others stay to be read but are lost, as in the page cache of Linux, until they are
// made again. random may be nil if share is 0; the disk goes on using it.
func (d *Disk) Fail(random *rand.Rand, share float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.random, d.share = random, share
}

// ReadAt implements [io.ReaderAt].
func (d *Disk) ReadAt(p []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0, os.ErrClosed
	}
	n := copy(p, d.seen[min(int(off), len(d.seen)):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements [io.WriterAt].
func (d *Disk) WriteAt(p []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0, os.ErrClosed
	}
	all := sectors(write{int(off), slices.Clone(p)})
	if d.fails() {
		some := slices.DeleteFunc(all, d.coin)
		d.unsynced = append(d.unsynced, some...)
		d.seen = apply(d.seen, some)
		return 0, ErrDisk
	}
	d.unsynced = append(d.unsynced, all...)
	d.seen = apply(d.seen, all)
	return len(p), nil
}

// Sync makes all writes durable.
func (d *Disk) Sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return os.ErrClosed
	}
	failed := d.fails()
	if failed {
		d.unsynced = slices.DeleteFunc(d.unsynced, d.coin)
	}
	d.durable, d.unsynced = apply(d.durable, d.unsynced), nil
	if failed {
		return ErrDisk
	}
	return nil
}

// Close ends this use of the disk; nothing is synced.
func (d *Disk) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return os.ErrClosed
	}
	d.closed = true
	return nil
}

// Kill ends the process that has the disk open, and returns the disk as the next
// one finds it: all that was written is there, durable or not. It does not Fail.
func (d *Disk) Kill() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return &Disk{seen: slices.Clone(d.seen), durable: slices.Clone(d.durable), unsynced: slices.Clone(d.unsynced)}
}

// PowerFail ends the process and the system, and returns the disk as it is found: each sector of
// each write that was not synced is there or is not, as random says. It does not Fail.
func (d *Disk) PowerFail(random *rand.Rand) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	kept := slices.DeleteFunc(slices.Clone(d.unsynced), func(write) bool { return random.IntN(2) == 0 })
	left := apply(slices.Clone(d.durable), kept)
	return &Disk{seen: left, durable: slices.Clone(left)}
}

// Copy returns another disk with a durable copy of what is read from this one, which goes on.
func (d *Disk) Copy() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &Disk{seen: slices.Clone(d.seen), durable: slices.Clone(d.seen)}
}

// fails and coin draw from random; mu must be held.
func (d *Disk) fails() bool     { return d.share > 0 && d.random.Float64() < d.share }
func (d *Disk) coin(write) bool { return d.random.IntN(2) == 0 }

// sectors takes w apart, at the borders of sectors.
func sectors(w write) (all []write) {
	for len(w.data) > 0 {
		n := min(sectorSize-w.at%sectorSize, len(w.data))
		all = append(all, write{w.at, w.data[:n]})
		w = write{w.at + n, w.data[n:]}
	}
	return all
}

// apply does the writes in their order.
func apply(file []byte, writes []write) []byte {
	for _, w := range writes {
		if end := w.at + len(w.data); end > len(file) {
			file = append(file, make([]byte, end-len(file))...)
		}
		copy(file[w.at:], w.data)
	}
	return file
}
