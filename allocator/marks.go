package allocator

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
)

// Marks remembers, for every tag, the end of all ranges that were seen: those
// that this generator reserved and those that it heard of from others. A store
// that offers a range below a mark went backwards.
//
// The generator's own marks are kept in a file, also after their tag is
// deleted: a line each, "crc32 tag end". A line is in the file before its range
// is served, so kill -9 loses nothing; what the operating system had not yet
// written, a power failure may lose. Lines that fail their checksum are passed
// over: a missing mark only makes the check weaker.
//
// Its methods are safe for concurrent use.
type Marks struct {
	mu   sync.Mutex
	ends map[string]int64

	// writing is held while the file is written, so that mu need not be: a disk
	// that hangs must not keep anybody from reading a mark.
	writing sync.Mutex
	file    *os.File // nil: kept in memory only
	lines   int      // in the file
	torn    bool     // its last line may be incomplete
}

// slackLines is how many lines the file may have beyond two a tag before it is
// written anew.
const slackLines = 4096

// NewMarks returns marks that are kept in memory only.
func NewMarks() *Marks { return &Marks{ends: make(map[string]int64)} }

// OpenMarks reads the file at path, or creates it, and keeps the marks there.
func OpenMarks(path string) (*Marks, error) {
	ends, err := readLines(path)
	if err != nil {
		return nil, fmt.Errorf("reading the high-water marks: %w", err)
	}
	m := &Marks{ends: ends}
	if err := m.rewrite(path); err != nil {
		return nil, fmt.Errorf("writing the high-water marks: %w", err)
	}
	return m, nil
}

// End is the end of all ranges of tag that were seen: the least ID that a new
// range may start with. 0 if none was seen.
func (m *Marks) End(tag string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ends[tag]
}

// Observe raises the mark of tag to end, in memory: another generator holds
// the IDs below.
func (m *Marks) Observe(tag string, end int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ends[tag] = max(m.ends[tag], end)
}

// Record raises the mark of tag to end, in memory and in the file. The mark in
// memory is raised also when the file could not be written.
func (m *Marks) Record(tag string, end int64) error {
	m.Observe(tag, end)
	m.writing.Lock()
	defer m.writing.Unlock()
	if m.file == nil {
		return nil
	}
	var failed error
	if m.lines > 2*m.tags()+slackLines {
		if failed = m.rewrite(m.file.Name()); failed == nil {
			return nil
		}
		m.lines = 2 * m.tags() // it is much work: not again for each of the next lines
	}
	var line []byte
	if m.torn {
		line = append(line, '\n') // that the torn one does not spoil this one
	}
	m.lines++
	_, err := m.file.Write(appendLine(line, tag, end))
	m.torn = err != nil
	return errors.Join(failed, err)
}

func (m *Marks) tags() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.ends)
}

// Close syncs and closes the file.
func (m *Marks) Close() error {
	m.writing.Lock()
	defer m.writing.Unlock()
	if m.file == nil {
		return nil
	}
	f := m.file
	m.file = nil
	return errors.Join(f.Sync(), f.Close())
}

// rewrite writes the file anew, one line a tag, and goes on with the new one.
// writing must be held.
func (m *Marks) rewrite(path string) error {
	m.mu.Lock()
	ends := maps.Clone(m.ends)
	m.mu.Unlock()
	failed := writeLines(path, ends)
	// Opened by its lasting name: the name is what the next rewrite replaces. After an
	// error the new file may have that name, too.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return errors.Join(failed, err)
	}
	if m.file != nil {
		m.file.Close()
	}
	m.file = f
	if failed == nil {
		m.lines, m.torn = len(ends), false
	}
	return failed
}
