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
	"strings"
	"sync"

	"github.com/leafbus/leafbus/allocator/disk"
)

// Disk is where a [File] keeps its bytes; an [os.File] is one.
type Disk interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
	Close() error
}

// Saved is what a generator must know of its worker after a restart. Times are Unix ms.
type Saved struct {
	// What the rest is true for. A file that says anything else here was copied
	// or belongs to another: it is a stranger's.
	Installation string `json:"installation"`
	Layout       Layout `json:"layout"`
	Place        string `json:"place"` // of the data folder: see At
	Node         string `json:"node"`

	Worker int64 `json:"worker"` // -1: not known yet
	// Incarnation is the one that the registry confirmed, Pending one that was
	// sent to it without an answer so far. Either may be empty.
	Incarnation string `json:"incarnation"`
	Pending     string `json:"pending"`
	// ReservedUntil bounds what may be issued without asking the registry; it is
	// at most what the registry confirmed.
	ReservedUntil int64 `json:"reserved_until_ms"`
	// Ceiling is above all that was issued.
	Ceiling int64 `json:"ceiling_ms"`
}

// At reports whether the state was saved in the folder at place, as package place
// names it. A release that knew only inodes saved a place without the birth time;
// so did one on a file system that kept none.
func (s Saved) At(place string) bool {
	return s.Place == place || strings.HasPrefix(place, s.Place+" ")
}

// File keeps a [Saved] so that a crash at any moment leaves the old or the new,
// and so that one bad spot on the disk loses neither. It is two slots, which are
// there from the start and overwritten in turn: it needs no room on a full disk,
// unless the file system writes elsewhere what is overwritten.
//
//	0                                   4096                                8192
//	┌───────────────────────────────────┬───────────────────────────────────┐
//	│ leaf-worker/1 checksum {"write":8…│ leaf-worker/1 checksum {"write":7…│
//	└───────────────────────────────────┴───────────────────────────────────┘
//	  the newest                          the one before, the next to go
//
// The slot with the higher number counts. If only one can be read, nobody knows
// whether the other was half-written or had been the newer, so either must be
// able to stand for the other. A Save that only raises the reservation, and the
// ceiling by no more than slack, writes one slot; any other writes both before it
// returns, and so does the first and the one after a failure. What is left then
// differs from what was lost in these two alone: it counts with its ceiling
// raised by slack, which is above all that was issued, and its reservation can
// only be too short.
//
// Its methods are safe for concurrent use.
type File struct {
	mu    sync.Mutex
	saved Saved
	ok    bool

	// writing is held while the disk is at work and mu is not: a disk that hangs
	// must not keep anybody from asking what is saved. saved and ok change under
	// both.
	writing sync.Mutex
	disk    Disk
	writes  int64     // the number of the last write that was tried
	newest  int64     // the slot that counts, the last to be overwritten
	slots   [2][]byte // what they hold; nil: it could not be read
	apart   bool      // one slot may not be able to stand for the other
}

const (
	slotSize = 4096 // bytes: a page, so that writing one slot leaves the other alone
	slack    = 4000 // ms by which the ceilings of the slots may differ
)

// OpenFile opens the file at path, or creates it with all the space that it
// will ever need. It is an error if there is no such space, if the file cannot
// be made durable, or if it cannot be read; see [NewFile].
// An operation that the disk does not finish within 5 s fails; see [disk.Runner].
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
	f, err := NewFile(bound(file))
	if err != nil {
		return nil, err
	}
	// Each time: who created it may have been killed before this.
	return f, disk.SyncFolder(filepath.Dir(file.Name()))
}

// NewFile reads what disk has. Slots that are empty, cut short or damaged are no
// error. It is one if the disk cannot be synced, or fails to read a slot while
// the other is not valid: then nobody knows that nothing was saved. The disk is
// the file's until Close; after an error it is still the caller's.
func NewFile(disk Disk) (*File, error) {
	// What a killed process wrote may be in the system's cache alone, and must
	// not be lost while the other slot is overwritten.
	if err := disk.Sync(); err != nil {
		return nil, fmt.Errorf("syncing the worker's file: %w", err)
	}
	f := &File{disk: disk, newest: 1, apart: true}
	var unread error
	valid := 0
	for i := range int64(2) {
		slot := make([]byte, slotSize)
		if _, err := disk.ReadAt(slot, i*slotSize); err != nil && !errors.Is(err, io.EOF) {
			unread = errors.Join(unread, err)
			continue
		}
		f.slots[i] = slot
		r, ok := readSlot(slot)
		if !ok {
			continue
		}
		valid++
		if r.Write > f.writes {
			f.writes, f.newest, f.saved, f.ok = r.Write, i, r.Saved, true
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

// Saved returns the last state whose Save returned nil; before the first, the
// one that was read. That may be one whose Save failed, or the one before, so it
// is to be saved before anything is done that relies on it. ok is false if there
// is none: the file is new, or both slots are damaged. It never waits for the
// disk.
func (f *File) Saved() (s Saved, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.saved, f.ok
}

// Save writes s, which is durable when Save returns nil. After an error the disk
// may have s or what it had: until a Save succeeds the caller keeps to what both
// allow. So whoever lowers the ceiling or the reservation keeps to the lower one
// before it calls. Save refuses what it could not read again: a state that is too
// long or not UTF-8, has no valid layout, a worker below -1 or a negative time.
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

// overwrite puts s into the older slot, which is the newest once it is durable.
// writing must be held.
func (f *File) overwrite(s Saved) error {
	r := record{Write: f.writes + 1, Saved: s}
	slot := r.slot()
	if again, ok := readSlot(slot); !ok || again != r {
		return fmt.Errorf("a state that cannot be kept: %+v", s)
	}
	if err := f.checkAlone(); err != nil {
		return err
	}
	f.apart = true
	f.writes++
	older := 1 - f.newest
	if _, err := f.disk.WriteAt(slot, older*slotSize); err != nil {
		return err
	}
	if err := f.disk.Sync(); err != nil {
		return err
	}
	f.newest, f.slots[older] = older, slot
	return nil
}

// checkAlone returns [ErrNotAlone] if another process has written to the file. Such a
// process was started on the same volume while this one was frozen, and the lock of the
// folder did not stop it. What it wrote must stay. A slot that cannot be read is no
// evidence, and is overwritten. If two processes write at the same moment, the next write
// finds it.
func (f *File) checkAlone() error {
	for i := range int64(2) {
		slot := make([]byte, slotSize)
		if _, err := f.disk.ReadAt(slot, i*slotSize); err != nil {
			continue
		}
		if f.slots[i] == nil || bytes.Equal(slot, f.slots[i]) { // nil: nobody knows what was there
			continue
		}
		if r, ok := readSlot(slot); ok && (i == f.newest || r.Write > f.writes) {
			return ErrNotAlone
		}
	}
	return nil
}

// Close closes the disk, after the Save that is under way; later ones fail. It
// writes nothing, and returns the error of the disk. Call it once.
func (f *File) Close() error {
	f.writing.Lock()
	defer f.writing.Unlock()
	return f.disk.Close()
}

// record is what a slot holds: a line of text, for people too.
type record struct {
	Write int64 `json:"write"` // numbers the writes from 1
	Saved
}

const (
	magic    = "leaf-worker/1 " // with the version of the form
	sumSize  = 16               // hexadecimal digits
	textFrom = len(magic) + sumSize
)

var sums = crc64.MakeTable(crc64.ECMA)

// slot writes the record: magic, the checksum of all that follows it, JSON,
// zeros. One that is too long is cut off, and cannot be read.
func (r record) slot() []byte {
	text, _ := json.Marshal(r) // never fails for strings and integers
	slot := make([]byte, slotSize)
	copy(slot[textFrom:], fmt.Appendf(nil, " %s\n", text))
	copy(slot, fmt.Appendf(nil, "%s%0*x", magic, sumSize, crc64.Checksum(slot[textFrom:], sums)))
	return slot
}

// readSlot reads what slot wrote; ok is false for anything else, and for what no
// generator can have meant.
func readSlot(slot []byte) (r record, ok bool) {
	if len(slot) != slotSize ||
		string(slot[:textFrom]) != fmt.Sprintf("%s%0*x", magic, sumSize, crc64.Checksum(slot[textFrom:], sums)) {
		return record{}, false
	}
	if json.Unmarshal(bytes.TrimRight(slot[textFrom:], "\x00"), &r) != nil {
		return record{}, false
	}
	ok = r.Write > 0 && r.Worker >= -1 && r.ReservedUntil >= 0 && r.Ceiling >= 0 && r.Layout.Validate() == nil
	return r, ok
}
