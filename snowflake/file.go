package snowflake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/leafbus/leafbus/allocator/disk"
)

// ErrNotAlone means that another process has written to the worker's file. What it wrote stays,
// and this process must end.
var ErrNotAlone = errors.New("another process has used this data folder meanwhile, though it is locked; stop one of " +
	"the two, and start the other again")

// Disk is where a [File] keeps its bytes; an [os.File] is one.
type Disk interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
	Close() error
}

// Saved is what a generator must know of its worker after a restart. Times are Unix ms.
type Saved struct {
	// The identity of the generator. If any of it differs, the file was copied or belongs to
	// another generator.
	Installation string `json:"installation"`
	Layout       Layout `json:"layout"`
	Place        string `json:"place"` // of the data folder: see package place
	Node         string `json:"node"`

	Worker int64 `json:"worker"` // -1: not known yet
	// Incarnation was confirmed by the registry. Pending was sent to it, and no answer has
	// come so far. Either may be empty.
	Incarnation string `json:"incarnation"`
	Pending     string `json:"pending"`
	// ReservedUntil bounds what may be issued without asking the registry. It is at most
	// what the registry confirmed.
	ReservedUntil int64 `json:"reserved_until_ms"`
	// Ceiling is above all that was issued.
	Ceiling int64 `json:"ceiling_ms"`
}

// File keeps a [Saved] so that a crash at any moment leaves the old state or the new one, and so
// that one bad spot on the disk loses neither. Its two slots are there from the start and are
// overwritten in turn. So it needs no room on a full disk, unless the file system writes elsewhere
// what is overwritten.
//
//	0                                   4096                                8192
//	+-----------------------------------+-----------------------------------+
//	| leaf-worker/1 checksum {"write":8 | leaf-worker/1 checksum {"write":7 |
//	+-----------------------------------+-----------------------------------+
//	  the newest                          the one before, overwritten next
//
// The slot with the higher number counts. If only one can be read, the other may have been
// half-written, or may have been the newer one. So each must be able to stand for the other:
//
//   - A Save that only raises the reservation, and the ceiling by at most slack, writes one slot.
//   - Any other Save writes both. So does the first one, and the one after a failure.
//   - A slot that is left alone counts with its ceiling raised by slack. That is above all
//     that was issued. Its reservation can only be too short.
//
// Its methods are safe for concurrent use.
type File struct {
	mu    sync.Mutex
	saved Saved
	ok    bool

	// writing is held during disk I/O, mu is not: Saved must not wait for a disk that hangs.
	// saved and ok change under both.
	writing sync.Mutex
	disk    Disk
	run     func(operation func() error) error // runs an operation of the disk
	writes  int64                              // the number of the last write that was tried
	newest  int64                              // the slot that counts, overwritten last
	slots   [2][]byte                          // what they hold; nil: it could not be read
	apart   bool                               // one slot may not be able to stand for the other
}

const (
	slotSize = 4096 // bytes: a page, so that writing one slot leaves the other alone
	slack    = 4000 // ms by which the ceilings of the slots may differ

	// diskWait bounds an operation on the worker's file. A slower disk cannot serve
	// snowflakes, because the ceiling is less than that ahead.
	diskWait = 5 * time.Second
)

// OpenFile opens the file at path, or creates it with all the space that it will ever need. It
// returns an error if there is no such space, if the file cannot be made durable, or if it cannot
// be read; see [NewFile].
//
// An operation that the disk does not finish within 5 s fails with [disk.ErrHangs], so that
// neither a start nor a stop waits for it. It may still happen later. Until then all other
// operations fail at once, so that a late write never replaces a newer one.
func OpenFile(path string) (*File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, fmt.Errorf("opening the worker's file: %w", err)
	}
	f, err := prepare(file)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("preparing the worker's file: %w", err)
	}
	return f, nil
}

func prepare(file *os.File) (*File, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if size := info.Size(); size < 2*slotSize { // new, or its creation was cut off
		if _, err := file.WriteAt(make([]byte, 2*slotSize-size), size); err != nil {
			return nil, err
		}
	}
	f, err := newFile(file, disk.NewRunner(diskWait).Run)
	if err != nil {
		return nil, err
	}
	// Each time, because the process that created it may have been killed before this.
	return f, disk.SyncFolder(filepath.Dir(file.Name()))
}

// NewFile reads what d has. An empty, short or damaged slot is no error. It returns an error if
// the disk cannot be synced, or fails to read a slot while the other is not valid: then
// something may have been saved. d belongs to the file until Close, and after an error to the
// caller. NewFile and the file wait for d without a bound.
func NewFile(d Disk) (*File, error) {
	return newFile(d, func(operation func() error) error { return operation() })
}

func newFile(d Disk, run func(operation func() error) error) (*File, error) {
	f := &File{disk: d, run: run, newest: 1, apart: true}
	// The last writes of a killed process may be in the system's cache alone. They must not
	// be lost while the other slot is overwritten.
	if err := run(d.Sync); err != nil {
		return nil, fmt.Errorf("syncing the worker's file: %w", err)
	}
	var unread error
	valid := 0
	for i := range f.slots {
		data, err := f.read(i)
		if err != nil {
			unread = errors.Join(unread, err)
			continue
		}
		f.slots[i] = data
		s, ok := readSlot(data)
		if !ok {
			continue
		}
		valid++
		if s.Write > f.writes {
			f.writes, f.newest, f.saved, f.ok = s.Write, int64(i), s.Saved, true
		}
	}
	switch {
	case valid == 0 && unread != nil:
		return nil, fmt.Errorf("reading the worker's file: %w", unread)
	case valid == 1:
		f.saved.Ceiling = min(f.saved.Ceiling, math.MaxInt64-slack) + slack
	}
	return f, nil
}

// read returns what a slot holds. The bytes belong to this call alone: a disk that hangs may
// write into them after read has returned an error.
func (f *File) read(i int) ([]byte, error) {
	data := make([]byte, slotSize)
	err := f.run(func() error {
		_, err := f.disk.ReadAt(data, int64(i)*slotSize)
		return err
	})
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return data, nil
}

// Saved returns the last state whose Save returned nil; before the first Save, the state that was
// read. That may be one whose Save failed, or the one before. So save it before anything relies on
// it. ok is false if there is none: the file is new, or both slots are damaged. Saved never waits
// for the disk.
func (f *File) Saved() (s Saved, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.saved, f.ok
}

// Save writes s, which is durable when Save returns nil. After an error the disk may have s or what
// it had: until a Save succeeds, the caller keeps to what both allow. So a caller that lowers the
// ceiling or the reservation keeps to the lower one before it calls Save. Save refuses a state that
// could not be read again: one that is too long or not UTF-8, or has an invalid layout, a worker
// below -1 or a negative time.
func (f *File) Save(s Saved) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	slots := 1
	if f.apart || !mayStandFor(f.saved, s) {
		slots = 2
	}
	for range slots {
		if err := f.overwrite(s); err != nil {
			return fmt.Errorf("writing the worker's file: %w", err)
		}
	}
	f.apart = false
	f.mu.Lock()
	defer f.mu.Unlock()
	f.saved, f.ok = s, true
	return nil
}

// mayStandFor reports whether a slot with old can be read in place of one with s.
func mayStandFor(old, s Saved) bool {
	grown := s.Ceiling - old.Ceiling
	if grown < 0 || grown > slack || s.ReservedUntil < old.ReservedUntil {
		return false
	}
	old.Ceiling, old.ReservedUntil = s.Ceiling, s.ReservedUntil
	return old == s
}

// overwrite puts s into the older slot, which is the newest once it is durable. writing must be
// held.
func (f *File) overwrite(s Saved) error {
	next := slot{Write: f.writes + 1, Saved: s}
	data := next.encode()
	if again, ok := readSlot(data); !ok || again != next {
		return fmt.Errorf("a state that cannot be kept: %+v", s)
	}
	if err := f.checkAlone(); err != nil {
		return err
	}
	f.apart = true
	f.writes++
	older := 1 - f.newest
	err := f.run(func() error {
		_, err := f.disk.WriteAt(data, older*slotSize)
		return err
	})
	if err != nil {
		return err
	}
	if err := f.run(f.disk.Sync); err != nil {
		return err
	}
	f.newest, f.slots[older] = older, data
	return nil
}

// checkAlone returns [ErrNotAlone] if another process has written to the file. Such a process was
// started on the same volume while this one was frozen, and the lock of the folder did not stop it.
// What it wrote must stay. A slot that cannot be read is no evidence, and is overwritten. If two
// processes write at the same moment, the next write finds it.
func (f *File) checkAlone() error {
	for i, known := range f.slots {
		data, err := f.read(i)
		if err != nil || known == nil || bytes.Equal(data, known) {
			continue
		}
		if s, ok := readSlot(data); ok && (int64(i) == f.newest || s.Write > f.writes) {
			return ErrNotAlone
		}
	}
	return nil
}

// Close closes the disk after the Save that is under way. Later ones fail. Close writes
// nothing, and returns the error of the disk. The file stays open if the disk hangs. Call it once.
func (f *File) Close() error {
	f.writing.Lock()
	defer f.writing.Unlock()
	return f.run(f.disk.Close)
}

// slot is what a slot holds: a line of text, for people too.
type slot struct {
	Write int64 `json:"write"` // numbers the writes from 1
	Saved
}

const (
	magic    = "leaf-worker/1 " // with the version of the form
	sumSize  = 16               // hexadecimal digits
	textFrom = len(magic) + sumSize
)

var sums = crc64.MakeTable(crc64.ECMA)

// encode writes the slot: magic, the checksum of all that follows it, JSON, zeros. A text
// that is too long is cut off, and cannot be read.
func (s slot) encode() []byte {
	text, _ := json.Marshal(s) // never fails for strings and integers
	data := make([]byte, slotSize)
	copy(data[textFrom:], fmt.Appendf(nil, " %s\n", text))
	copy(data, head(data))
	return data
}

// readSlot reads what encode wrote. ok is false for anything else, and for what no generator can
// have meant.
func readSlot(data []byte) (s slot, ok bool) {
	if len(data) != slotSize || string(data[:textFrom]) != head(data) {
		return slot{}, false
	}
	if json.Unmarshal(bytes.TrimRight(data[textFrom:], "\x00"), &s) != nil {
		return slot{}, false
	}
	ok = s.Write > 0 && s.Worker >= -1 && s.ReservedUntil >= 0 && s.Ceiling >= 0 && s.Layout.Validate() == nil
	return s, ok
}

// head is what must stand before the text of a slot.
func head(data []byte) string {
	return fmt.Sprintf("%s%0*x", magic, sumSize, crc64.Checksum(data[textFrom:], sums))
}
